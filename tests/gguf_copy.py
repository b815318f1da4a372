"""A GGUF written anew with other keys or tensors."""
import gguf


def value_of(field):
    """(value, type, type of an array's items or None) of a reader's field."""
    item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
    return field.contents(), field.types[0], item


def copy(source, out, keys, tensors=lambda found: found):
    """keys({name: (value, type, item)}) and tensors({name: (array, type)}) give what the copy has; arrays lie as the file
    has them (rows first)."""
    reader = gguf.GGUFReader(str(source))
    arch = "general.architecture"
    found = {f.name: value_of(f) for f in reader.fields.values() if not f.name.startswith("GGUF.") and f.name != arch}
    w = gguf.GGUFWriter(str(out), reader.fields[arch].contents())
    for name, (value, kind, item) in keys(found).items():
        w.add_key_value(name, value, kind, item)
    for name, (data, kind) in tensors({t.name: (t.data, t.tensor_type) for t in reader.tensors}).items():
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return out


def with_original(source, out, n, tensors=lambda found: found):
    """The phi3 model with an original context of n: longer sequences turn by its second list of factors."""
    key = "phi3.rope.scaling.original_context_length"
    return copy(source, out, lambda found: {**found, key: (n, *found[key][1:])}, tensors)
