// llama.cpp's own grammar of a JSON schema, for peer_constrain.py: built against its headers, loaded beside its library,
// whose build writes another form unless it is asked for this one.
#include "json-schema-to-grammar.h"

#include <cstring>

// The GBNF, to be freed; NULL: it refuses the schema.
extern "C" char *schema_gbnf(const char *text)
{
    try {
        return strdup(json_schema_to_grammar(common_json::parse(text), true).c_str());
    } catch (const std::exception &) {
        return nullptr;
    }
}
