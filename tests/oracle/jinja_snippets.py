"""Templates of our own for test_templates.py: each part of the language, and expressions drawn at random."""

VARIABLES = {
    "messages": [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "2+2?"}],
    "d": {"b": 1, "a": {"x": [1, 2], "y": None}, "items": "I", "C": 2.5, "get": "G"}, "l": [3, 1, 2], "e": [], "s": "  a b\tc\n",
    "t": "x,y,,z", "u": "caf\u00e9 \u4e2d\U0001F600\u00df", "i": 7, "f": 2.5, "neg": -3, "big": 9223372036854775807, "yes": True, "no": False, "nil": None,
    "people": [{"name": "bob", "age": 3, "tags": ["x"]}, {"name": "Al", "age": 3}, {"name": "cy", "age": 1, "tags": []}],
    "floats": [0.1, 1e16, 123456789012345.0, 1e-05, 0.0001, 5e-324, 1.7976931348623157e+308, -0.0, 100.0], "html": "<a href=\"x\">'&'</a>",
    "lines": "one\ntwo\n\n  three\r\nfour", "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None,
}

SNIPPETS = {
    "white space": [
        "a\n", "a\n\n", "\n", "", "  {% if yes %}\n  x\n  {% endif %}\n  y", "a {%- if yes -%}  b  {%- endif -%} c", "a\n   {%+ if yes %} b{% endif +%}\n c",
        "{{ i }}\n  {{- i }}  \n", "  {{ i -}}  \n x", "{# c #}\nx", "  {#- c -#}  x", "x  {#+ c +#}\n y", "{% raw %} {{ x }} {% if %} {% endraw %}\ny",
        "a  {%- raw -%}  {{ }}  {%- endraw -%}  b", "{% set x = 1 %}\n{{ x }}\n{% set y = 2 %}", "x\r\n  {% if yes %}\r\ny{% endif %}\rz",
        "{% if yes %}\n\n  a\n\n{% endif %}\n\nb", "\t {% if yes %}z\t {% endif %}", "\u00a0 {% if yes %}nbsp{% endif %}", "{{'a'}}  {% if yes %}b{% endif %}",
        "{%- for x in l -%}\n {{ x }} \n{%- endfor -%}\n", "{%if yes%}a{%endif%}", "{{- 'x' -}}", "{{ '}}' }}{{ \"%}\" }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a':{'b':1}}}}",
        "{% if yes %}{% endif %}\n{% if yes %}{% endif %}\nx", "a{{ 1 }}\n", "{ {{ 1 }} }", "{", "{ %", "#}", "{%- -%}", "{{ +}}", "a #} b %} c }}",
        "{% if yes %}a{% endif %}   \n  b\n   {% if yes %}\n    c\n   {% endif %}   d",
    ],
    "literals": [
        "{{ 'a\\nb\\t\\x41\\u00e9\\U0001F600\\101\\q\\'' }}", "{{ \"a'b\" 'c' \"d\" }}", "{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }} {{ 1e-7 }} {{ 12.0 }}",
        "{{ 9223372036854775807 }}", "{{ [1, 'a', none, true, 2.0, (1,), {'k': [1]}] }}", "{{ {1: 'a', 'b': 2.5, none: false, (1, 2): 3} }}", "{{ () }} {{ (1,) }} {{ (1, 2) }}",
        "{{ ['it\\'s', '\"', 'a\\\\', '\\x00\\x7f\\u200b\\ue000', '\\n'] }}", "{{ True }} {{ False }} {{ None }} {{ none }}", "{{ [undefined_name] }}", "{{ 'a' 'b' ~ 1 }}",
        "{{ floats }}", "{{ u }} {{ [u] }}", "{{ 1, 2 }}", "{{ [] }}{{ {} }}", "{{ 007 }}", "{{ 00 }}", "{{ '\\N{BULLET}' == 'x' }}{% if", "{{ 'a\\\nb' }}", "{{ 1.e3 }}", "{{ l.0 }}", "{{ 1.0.x }}",
    ],
    "operators": [
        "{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }}", "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1e308 * 10 }}",
        "{{ 'ab' * 3 }} {{ [1] * 2 }} {{ 2 * 'x' }} {{ 'x' * -1 }}", "{{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' + 'b' }}", "{{ 1 ~ 'a' ~ none ~ 2.0 ~ [1] }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }}",
        "{{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 2) }}", "{{ 1 in l }} {{ 'a' in s }} {{ 'x' not in d }} {{ 'b' in d }} {{ 1 in (1, 2) }}", "{{ not yes }} {{ not no and yes }} {{ yes or 1/0 }}",
        "{{ e or 'empty' }} {{ l and 'full' }} {{ 0 or '' or none }}", "{{ 'a' if yes else 'b' }} {{ 'a' if no }}|{{ 'a' if no else 'b' if no else 'c' }}", "{{ 1/0 }}", "{{ 1 % 0 }}", "{{ 1.0 // 0 }}",
        "{{ 'a' + 1 }}", "{{ none + 1 }}", "{{ 1 < 'a' }}", "{{ [] < {} }}", "{{ 1 in 5 }}", "{{ 1 in 'a1' }}", "{{ x + 1 }}", "{{ -x }}", "{{ -'a' }}", "{{ +yes }} {{ -yes }} {{ yes + 1 }}", "{{ 2 ** 3 ** 2 }}",
        "{{ 'a' == 'a' }} {{ 1 == '1' }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == false }} {{ undefined1 == undefined2 }}", "{{ '%s is %d, %5.2f %x %r %%' % ('a', 3, 2.5, 255, 'q') }}",
        "{{ '%s' % 'x' }} {{ '%(a)s' % {'a': 1} }} {{ '%-5s|%5s|%05d' % (1, 2, -3) }}", "{{ '%s %s' % 'x' }}", "{{ '%d' % 'x' }}", "{{ l[0] if l }}", "{{ 1 if x is defined else 2 }}", "{{ (1 if yes) + 1 }}",
    ],
    "subscripts": [
        "{{ l[0] }} {{ l[-1] }} {{ l[9] }}|{{ s[0] }} {{ u[-1] }} {{ u[4] }}", "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:1] }} {{ l[2:0:-1] }}", "{{ u[1:4] }} {{ u[::-1] }} {{ 'abcdef'[1:-1:2] }}",
        "{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d.zz }}| {{ d['zz'] }}|", "{{ d.zz.y }}", "{{ x.y }}", "{{ x['y'] }}", "{{ none.x }}|{{ (1).x }}|{{ l.x }}|{{ 'a'.x }}|", "{{ none['x'] }}|{{ l['x'] }}|{{ 5[0] }}|", "{{ d['items'] }} {{ d.get('b') }}",
        "{{ d.items()|list }}", "{{ d.keys()|list }} {{ d.values()|list }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d['a'].get('y', 5) }}", "{{ d.items() }} {{ d.keys() }} {{ d.values() }}", "{{ {}['items'] is defined }} {{ {}.items is callable }}",
        "{{ l[none] }}|", "{{ l['a':] }}", "{{ l[1:2:0] }}", "{{ d[1:] }}", "{{ x[1:] }}", "{{ l[yes] }}", "{{ d[[1]] }}|", "{{ d[()] }}|", "{{ {1: 2}[1.0] }} {{ {true: 2}[1] }}", "{{ (1, 2)[1] }} {{ range(5)[2] }} {{ range(5)[1:3]|list }}",
        "{{ l.append(4) }}", "{{ d.pop('b') }}", "{{ d.update({}) }}", "{{ l.append is defined }}", "{{ d.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ l.index(1) }} {{ l.count(3) }}", "{{ l.index(9) }}", "{{ messages[0].content[1] }} {{ messages[-1]['role'] }}",
        "{{ d.items }}|{{ 1 }}"[20:], "{{ messages|first|attr('role') }}|", "{{ d.a['x'][0] }}{{ d['a'].x.0 }}", "{{ s[1, 2] }}|",
    ],
    "methods of strings": [
        "{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.rstrip('cb') }}|{{ 'a'.strip(none) }}", "{{ t.split(',') }} {{ s.split() }} {{ t.split(',', 1) }} {{ t.rsplit(',', 1) }} {{ 'a  b '.split(' ') }} {{ ' a b c '.split(none, 1) }} {{ ' a b c '.rsplit(none, 1) }}",
        "{{ 'a'.split('') }}", "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }}", "{{ 'aXbX'.replace('X', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }}",
        "{{ u.upper() }} {{ 'HeLLo wORLD'.lower() }} {{ \"they're bill's\".title() }} {{ 'hELLO'.capitalize() }} {{ 'aB'.swapcase() }} {{ '\\u01c6'.title() }} {{ '\\ufb01x'.capitalize() }}", "{{ 'abcabc'.find('c') }} {{ 'abc'.find('z') }} {{ u.find('\\u4e2d') }} {{ 'abcabc'.rfind('b') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abc'.index('c') }}",
        "{{ 'abc'.index('z') }}", "{{ ','.join(['a', 'b']) }}", "{{ ','.join([1]) }}", "{{ '-'.join('abc') }}", "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }}", "{{ lines.splitlines() }} {{ 'a\\n'.splitlines(true) }} {{ ''.splitlines() }}",
        "{{ 'ab'.ljust(5, '.') }}|{{ 'ab'.rjust(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'abc'.center(6) }}|{{ '-5'.zfill(4) }}|{{ '5'.zfill(3) }}", "{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ''.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ '\\u00b2'.isdigit() }} {{ '\\u00bd'.isnumeric() }}",
        "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'ab'.removesuffix('') }}", "{{ 'a {} b {} {}'.format(1, 'x', none) }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=2) }} {{ '{{}}'.format() }}", "{{ 'x'.nosuch() }}", "{{ 'x'.upper }}"[3:], "{{ 'x'.upper(1) }}", "{{ 'x'.replace('a') }}", "{{ 'x'.startswith(1) }}", "{{ 'x'.strip(1) }}",
    ],
    "filters of text": [
        "{{ s|trim }}|{{ 'xax'|trim('x') }}|{{ 5|trim }}|{{ x|trim }}|", "{{ u|upper }} {{ 'AB'|lower }} {{ 'hello wORLD-foo (bar)'|title }} {{ 'hELLO'|capitalize }} {{ none|upper }} {{ 12|lower }}", "{{ 'aXb'|replace('X', '-') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 123|replace(2, 'x') }}",
        "{{ lines|indent }}", "{{ lines|indent(2, true) }}", "{{ lines|indent(2, first=true, blank=true) }}", "{{ lines|indent('> ') }}", "{{ ''|indent }}|{{ 'a\\n'|indent }}|", "{{ 5|indent }}", "{{ x|indent }}", "{{ html|e }} {{ html|escape|e }} {{ html|safe }} {{ html|forceescape }} {{ 5|e }}",
        "{{ ('<b>'|safe) + '<i>' }} {{ '<i>' + ('<b>'|safe) }} {{ ('<b>'|safe) ~ '<i>' }} {{ [('<b>'|safe)] }}", "{{ html|tojson|safe }}|{{ '>' + html|tojson|safe }}", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '..', 0) }}",
        "{{ 'a b  c_d e-f'|wordcount }}", "{{ 'ab'|center(6) }}|", "{{ '%s-%s'|format(1, 'b') }} {{ '%(a)s'|format(a=1) }}", "{{ 'a b&c/\u00e9'|urlencode }} {{ {'a': 'b c', 'd': '/'}|urlencode }}", "{{ u|length }} {{ 'abc'|reverse }} {{ 'abc'|list }} {{ 'abc'|first }} {{ 'abc'|last }} {{ ''|first }}|", "{{ 5|string + 'a' }} {{ none|string }} {{ x|string }}|{{ [1]|string }}",
        "{{ 'x'|nosuch }}", "{% if no %}{{ 'x'|nosuch }}{% endif %}ok", "{{ 'a'|replace }}", "{{ 'a'|trim('a', 'b') }}", "{{ 'a'|upper(x=1) }}",
    ],
    "filters of lists": [
        "{{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b', 'A', 'c', 'a']|sort }} {{ ['b', 'A', 'c', 'a']|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name')|map(attribute='name')|list }} {{ people|sort(true, attribute='age')|map(attribute='name')|list }}",
        "{{ [1, 'a']|sort }}", "{{ d|dictsort(by='key') }}", "{{ {'b': 1, 'A': 2, 'a': 3}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 2, 'A': 1}|dictsort(by='value', reverse=true) }}", "{{ l|join }} {{ l|join(', ') }} {{ people|join('/', attribute='name') }} {{ 'abc'|join('-') }} {{ [none, 1.0, x]|join(',') }} {{ x|join }}|",
        "{{ people|map(attribute='name')|list }} {{ people|map(attribute='tags', default='-')|list }} {{ people|map(attribute='tags.0')|list|length }} {{ ['a', 'b']|map('upper')|join }} {{ [[1, 2], [3]]|map('join', '-')|list }} {{ l|map('string')|map('length')|list }} {{ none|map('upper')|list }}",
        "{{ l|select('odd')|list }} {{ l|select('gt', 1)|list }} {{ [0, 1, '']|select|list }} {{ l|reject('equalto', 1)|list }} {{ [0, 1]|reject|list }} {{ people|selectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('age', 'eq', 3)|list|length }} {{ people|rejectattr('tags', 'defined')|map(attribute='name')|list }} {{ people|selectattr('name', 'in', ['bob'])|list }}",
        "{{ l|select('nosuch')|list }}", "{{ l|map|list }}", "{{ l|first }} {{ l|last }} {{ e|first }}|{{ e|last }}|{{ d|first }} {{ d|last }} {{ 5|first }}", "{{ (l|map('string'))|last }}", "{{ l|map('string') is iterable }} {{ 'yes' if e|map('string') else 'no' }}", "{{ (l|map('string'))|length }}",
        "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{{ l|reverse|list }} {{ d|reverse|list }} {{ l|length }} {{ d|length }} {{ d|count }} {{ x|length }}", "{{ 5|length }}", "{{ none|length }}", "{{ l|min }} {{ l|max }} {{ ['b', 'A']|min }} {{ people|max(attribute='age') }} {{ e|max }}|",
        "{{ l|sum }} {{ people|sum(attribute='age') }} {{ [0.5, 1]|sum(start=10) }} {{ [[1], [2]]|sum(start=[]) }}", "{{ ['a']|sum }}", "{{ ['a', 'A', 'b', 'a']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}",
        "{% for g in people|groupby('age') %}{{ g.grouper }}: {{ g.list|map(attribute='name')|join(' ') }} {{ g[0] }};{% endfor %}", "{% for a, b in people|groupby('age') %}{{ a }}{{ b|length }}{% endfor %}", "{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 0)|list }} {{ [1, 2, 3, 4, 5]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, 'x')|list }}",
        "{{ d|items|list }} {{ x|items|list }}", "{{ l|list is sameas l }}", "{{ 'abc'|batch(2)|list }}", "{{ x|list }} {{ range(3)|list }} {{ d|list }} {{ none|list }}", "{{ [[2, 'b'], [1, 'a']]|sort }} {{ [3, 1]|sort|first }}",
    ],
    "filters of values": [
        "{{ x|default('d') }} {{ ''|default('d') }}|{{ ''|default('d', true) }} {{ none|default('d') }} {{ none|d('d', boolean=true) }} {{ x|default }}|{{ d.q|default(1) + 1 }}", "{{ -5|abs }} {{ 2.5|abs }} {{ neg|abs }}", "{{ 'a'|abs }}", "{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ '0x1A'|int(base=16) }} {{ ' 5 '|int }} {{ 3.9|int }} {{ none|int }} {{ yes|int }} {{ '1_0'|int }} {{ '-7'|int }} {{ 'inf'|int }} {{ '101'|int(base=2) }}",
        "{{ x|int }}", "{{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ '1e3'|float }} {{ none|float(2) }} {{ 'nan'|float }} {{ '-inf'|float }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(1, 'ceil') }} {{ 5|round }} {{ 1234|round(-2) }} {{ 1234.5|round(-2) }} {{ 2.5|round|int }}",
        "{{ 5|round(0, 'x') }}", "{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ l|tojson(indent=4) }}|{{ {}|tojson(indent=1) }}", "{{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ html|tojson }} {{ 'a\\n\\t\\x01\\x7f\\\\'|tojson }} {{ '\\x7f'|tojson(true) }}", "{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(indent='--', separators=('; ', ' = ')) }}",
        "{{ [1, 2.0, none, true, 1e20, floats]|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }}", "{{ x|tojson }}", "{{ range(2)|tojson }}", "{{ d.items()|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ l|map('string')|tojson }}", "{{ d|tojson(sort_keys=true, indent=2) }}", "{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}", "{{ namespace(a=1)|tojson }}",
    ],
    "tests": [
        "{{ x is defined }} {{ i is defined }} {{ x is undefined }} {{ d.q is not defined }} {{ nil is none }} {{ nil is defined }}", "{{ 1 is number }} {{ yes is number }} {{ 1 is integer }} {{ yes is integer }} {{ 1.0 is float }} {{ yes is boolean }} {{ 'a' is string }} {{ l is string }}",
        "{{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ d is sequence }} {{ 'a' is sequence }} {{ 5 is sequence }} {{ x is sequence }} {{ range(2) is sequence }}", "{{ l is iterable }} {{ 'a' is iterable }} {{ 5 is iterable }} {{ x is iterable }} {{ none is iterable }} {{ d.items() is iterable }} {{ d.items() is sequence }}",
        "{{ 3 is odd }} {{ 3 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }}", "{{ 'ab' is lower }} {{ 'AB' is upper }} {{ '1' is lower }} {{ 'A1' is upper }}", "{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 1 }} {{ 2 is gt 1 }} {{ 1 is le 0 }} {{ 1 is == 1 }}"[:-20],
        "{{ 1 is in [1, 2] }} {{ 'a' is in 'abc' }} {{ 3 is not in l }}", "{{ yes is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ none is sameas none }} {{ l is sameas l }} {{ [] is sameas [] }}", "{{ range is callable }} {{ 'a'.upper is callable }} {{ 5 is callable }} {{ x is callable }}", "{{ 'upper' is filter }} {{ 'nosuch' is filter }} {{ 'odd' is test }}",
        "{{ 1 is nosuch }}", "{{ 'a' is odd }}", "{{ x is odd }}", "{{ 1 is divisibleby 0 }}", "{{ 1 is defined is defined }}", "{{ not x is defined }} {{ x is not defined and yes }}", "{{ 1 is eq 1 and 2 is eq 2 }} {{ 1 is none or yes }} {{ 'a' is string if yes else 0 }}", "{{ 'x'|safe is escaped }} {{ 'x' is escaped }}",
    ],
    "if, for": [
        "{% if e %}a{% elif l %}b{% else %}c{% endif %}", "{% if x %}a{% elif nil %}b{% elif no %}c{% else %}d{% endif %}", "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
        "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is undefined }} {% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }}{{ loop.nextitem }} {% else %}none{% endfor %}", "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}", "{% for x in e %}{% else %}empty{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for c in 'a\\u4e2d' %}[{{ c }}]{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in undefined_thing %}{% else %}nothing{% endfor %}",
        "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}", "{% for x in [1, 2] %}{% for y in [3, 4] %}{% if y == 4 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}", "{% for x in l %}{% endfor %}{{ x }}{{ loop }}",
        "{% for n in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}]}, {'v': 4}] recursive %}{{ n.v }}{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{% break %}", "{% if yes %}{% continue %}{% endif %}", "{% for x in l, e %}{{ x }}{% endfor %}", "{% for x in l if yes else e %}{% endfor %}", "{% for x in (l if yes else e) %}{{ x }}{% endfor %}", "{% for x in l recursive %}{{ x }}{% endfor %}",
        "{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(5, 1, -2) %}{{ x }}{% endfor %}{{ range(0) }} {{ range(1, 9, 2) }}", "{% for x in range(100001) %}{% endfor %}", "{% if %}{% endif %}", "{% if yes, no %}t{% endif %}", "{% for m in messages %}{% if loop.first %}[{% endif %}{{ m.content|trim }}{% if not loop.last %},{% else %}]{% endif %}{% endfor %}", "{% for loop in l %}{{ loop }}{% endfor %}"[:0] + "x",
        "{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% set outer = namespace(n=0) %}{% for x in [1, 2, 3, 4] if outer.n < 2 %}{% set outer.n = outer.n + 1 %}{{ x }}{% endfor %}", "{% for x in l %}{{ loop }}{% endfor %}", "{% for x in l %}{{ loop.nosuch }}{% endfor %}", "{% for x in l %}{{ loop.revindex0 }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
    ],
    "set and scopes": [
        "{% set a = 1 %}{{ a }}{% set a = a + 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}", "{% set a, b = 1 %}", "{% set a, b = [1, 2, 3] %}", "{% set a = 1 %}{% for x in l %}{{ a }}{% set a = x %}{{ a }}{% endfor %}{{ a }}", "{% for x in l %}{% set q = x %}{% endfor %}{{ q }}|", "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}", "{% if no %}{% set i = 1 %}{% endif %}{{ i }}",
        "{% if yes %}{% if yes %}{% set q = 5 %}{% endif %}{% endif %}{{ q }}", "{% set ns = namespace(a=1, b='x') %}{% for x in l %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns['a'] }} {{ ns.c }}|{% set ns.c = 3 %}{{ ns.c }} {{ ns }}", "{% set d.b = 5 %}", "{% set nothing.a = 5 %}", "{% set ns = namespace({'q': 1}, r=2) %}{{ ns.q }}{{ ns.r }}", "{% set x %}a{{ i }}b{% endset %}{{ x }}|{{ x|length }}", "{% set x|upper %}a{{ i }}{% endset %}{{ x }}", "{% set x | trim | replace('a', 'b') %}  a {% endset %}[{{ x }}]",
        "{% set ns = namespace() %}{% set ns.t %}z{% endset %}{{ ns.t }}", "{% set y = 1 %}{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}", "{% for x in l %}{{ tools }}{% endfor %}{% set tools = 5 %}{{ tools }}", "{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% set i = 8 %}{{ m() }}", "{% for x in l %}{{ i }}{% if no %}{% set i = 3 %}{% endif %}{% endfor %}{{ i }}", "{{ i }}{% set i = 3 %}{{ i }}", "{% for x in l %}{{ i }}{% set i = x %}{% endfor %}",
        "{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w }}|", "{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% with i = 1 %}{% with j = i %}{{ j }}{% endwith %}{% endwith %}{{ i }}", "{% filter upper %}a{{ t }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aAa{% endfilter %}", "{% filter trim %}{% set q = 1 %} {{ q }} {% endfilter %}{{ q }}|", "{% set range = 5 %}{{ range }}", "{% set a = 1, %}{{ a }}", "{% set %}", "{% set a b %}",
        "{% generation %}{% set q = 1 %}a{{ q }}{{ i }}\n{% endgeneration %}\n{{ q }}|", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% set x = [1, 2] %}{% set y = x + [3] %}{{ x }}{{ y }}", "{% set ns = namespace(l=[]) %}{% for x in l %}{% set ns.l = ns.l + [x] %}{% endfor %}{{ ns.l }}", "{% set a = dict(x=1, **{'y': 2}) %}{{ a }} {{ dict([('a', 1)]) }} {{ dict({'z': 1}, q=2) }}", "{{ dict(1) }}", "{% if yes %}{% set messages = messages[1:] %}{% endif %}{{ messages|length }}",
        "{% for x in l %}{% set z = z|default(0) + 1 %}{{ z }}{% endfor %}", "{% macro a() %}{{ q|default('no') }}{% endmacro %}{% set q = 1 %}{{ a() }}", "{% if no %}{% macro f() %}a{% endmacro %}{% endif %}{{ f is defined }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    ],
    "macros": [
        "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c=5) }} {{ f(b=1, a=0) }} {{ f() }}|", "{% macro f(a) %}x{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}x{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{{ i }}{% endcall %}",
        "{% macro f() %}[{{ caller(1, y=2) }}]{% endmacro %}{% call(x, y) f() %}{{ x }}{{ y }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}in{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", "{% macro fact(n) %}{{ n if n < 2 else (n * fact(n - 1)|int) }}{% endmacro %}{{ fact(5) }}", "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "{{ f(1) }}{% macro f(a) %}{{ a }}{% endmacro %}",
        "{% macro f(x) %}{% if x is mapping %}{% for k, v in x|dictsort %}{{ k }}:{{ f(v) }};{% endfor %}{% elif x is iterable and x is not string %}[{% for y in x %}{{ f(y) }}{% if not loop.last %},{% endif %}{% endfor %}]{% else %}{{ x|string|upper }}{% endif %}{% endmacro %}{{ f(d) }}", "{% macro f() -%}\n  a\n{%- endmacro %}{{ f() }}|{{ f()|length }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}",
        "{% macro f(a) %}{{ a }}{% endmacro %}{% set g = f %}{{ g(3) }} {{ f.name }} {{ f }}", "{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ f() }}{{ q }}|", "{% macro f(l) %}{% for x in l %}{{ x }}{% endfor %}{% endmacro %}{{ f([7]) }}{{ l }}", "{% macro outer() %}{% macro inner() %}i{{ i }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}", "{% macro f(a, b) %}{{ b is defined }}{{ b }}{% endmacro %}{{ f(1) }}",
        "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(a) %}{{ a }}{% endmacro f %}", "{{ i() }}", "{{ none() }}", "{{ nosuch() }}", "{% call i() %}{% endcall %}", "{% macro f(a=[]) %}{{ a }}{% endmacro %}{{ f() }}{{ f([1]) }}", "{% macro f(x) %}{{ x }}{% endmacro %}{{ f('<b>'|safe) + '<' }}", "{% macro f(x) %}{% for m in messages %}{{ m.role[0] }}{{ x }}{% endfor %}{% endmacro %}{{ f('-') }}",
    ],
    "refusals": [
        "{{ raise_exception('No system.') }}", "{{ raise_exception('caf\u00e9 \\n end') }}", "{{ raise_exception() }}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% do 1 %}", "{% nosuch %}", "{% if yes %}", "{% endif %}", "{% for x in l %}", "{% else %}", "{{ 'x }}", "{{ x", "{# x", "{% raw %}", "{{ }}", "{{ i i }}", "{{ l[ }}", "{{ (1 }}", "{{ [1 }}", "{{ {1 }}",
        "{{ 1 + }}", "{{ not }}", "{{ a.}}", "{{ a|}}", "{{ a is }}", "{{ f(a b) }}", "{{ f(a=1, 2) }}", "{{ $ }}", "{{ ! }}", "{{ a = 1 }}", "{% set 1 = 2 %}", "{% set a.b.c = 1 %}", "{% for 1 in l %}{% endfor %}", "{{ strftime_now('%d %b %Y %H:%M %A %j %%') }}", "{{ strftime_now() }}", "{{ lipsum.x }}"[:0] + "{{ nosuch.x }}", "{{ [][0].x }}", "{{ messages[9].role }}", "{{ 'a'|map('x')|list }}", "{{ ''.join(1) }}",
        "{{ strftime_now('%B %-d, %y %p %I %U %w') }}", "{{ namespace(1) }}", "{{ namespace(a=1)[0] }}|", "{{ 'a' in namespace(a=1) }}", "{% for x in namespace(a=1) %}{% endfor %}", "{{ namespace() == namespace() }} {{ namespace() }}",
    ],
}

# --- expressions drawn at random ---

TEXTS = ["'a'", "s", "t", "u", "''", "html", "lines", "'ab,c'", "messages[0].role", "'x'|safe", "'%s'"]
NUMBERS = ["1", "0", "i", "f", "neg", "yes", "2.5", "l[0]", "-1", "no", "1e3"]
LISTS = ["l", "e", "[1, 'a', none]", "(1, 2)", "range(3)", "floats", "['b', 'A', 'a']", "messages", "people", "t.split(',')", "u|list", "d.keys()", "d.values()"]
OTHERS = ["d", "none", "nosuch", "d.a", "{}", "{'k': 1, 2: 'v'}", "d.nosuch", "people[0]", "nil"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "list", "first", "last", "reverse|list", "sort", "join", "join('-')", "string", "int", "float", "abs", "round", "tojson", "default('d')",
           "default('d', true)", "replace('a', 'b')", "indent(1)", "items|list", "dictsort", "unique|list", "sum", "min", "max", "map('string')|list", "select|list", "reject|list", "select('string')|list", "batch(2)|list",
           "e", "safe", "wordcount", "center(9)", "tojson(indent=1)", "count", "map('length')|list", "selectattr('age')|list", "map(attribute='name')|list", "truncate(6)", "urlencode", "slice(2)|list", "round(1)", "int(5)", "attr('x')"]
METHODS = ["strip()", "split()", "split(',')", "upper()", "title()", "startswith('a')", "endswith('c')", "replace('a', 'X')", "find('b')", "items()|list", "get('b')", "get('q', 1)", "keys()|list", "isdigit()", "count('a')", "index(1)",
           "splitlines()", "lstrip('<')", "rsplit(',', 1)", "partition(',')", "zfill(5)", "join(['p', 'q'])", "capitalize()", "swapcase()", "isalpha()", "islower()", "values()|list", "center(7, '*')"]
TESTS = ["defined", "none", "string", "number", "mapping", "iterable", "sequence", "odd", "even", "true", "false", "integer", "float", "boolean", "undefined", "callable", "eq 1", "in l", "lower", "upper", "divisibleby 2", "gt 1", "sameas none"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or", "**"]


def expression(draw, depth):
    kind = draw.randrange(11) if depth > 0 else 0
    if kind < 3:
        return draw.choice(draw.choice([TEXTS, NUMBERS, LISTS, OTHERS]))
    a = expression(draw, depth - 1)
    if kind < 5:
        return f"({a})|{draw.choice(FILTERS)}"
    if kind == 5:
        return f"({a}).{draw.choice(METHODS)}"
    if kind == 6:
        return f"(({a}) is {draw.choice(['', 'not '])}{draw.choice(TESTS)})"
    b = expression(draw, depth - 1)
    if kind == 7:
        return f"({a} {draw.choice(OPERATORS)} {b})"
    if kind == 8:
        return f"({a} if {b} else {expression(draw, depth - 1)})"
    if kind == 9:
        return f"({a})[{draw.choice(['0', '-1', '1:', '::-1', ':2', repr('x'), repr('age'), b])}]"
    return draw.choice([f"[{a}, {b}]", f"({a}, {b})", f"{{'k': {a}, 'm': {b}}}", f"(not {a})", f"({a} < {b} <= 3)"])


def excused(text, want, got):
    """What is known to differ: numbers beyond 64 bits; what Python prints with an address; slices of constants that have
    none, which jinja2 folds to undefined and refuses of variables; the set operations of a dictionary's views; powers that
    need libm."""
    why = got[1] or ""
    return want[0] is not None and (" at 0x" in want[0] or any(
        x in why for x in ("beyond 64 bits", "has no text", "cannot be sliced", "view of a dict", "power with this")))
