"""GGUFs made of others, by the `gguf` package."""
import gguf


def copy(source, out, tensor, more=None, **options):
    """`out` with the metadata of `source` and tensor(t), the arguments of add_tensor, for each of its tensors. more: keys that
    it has in place of those, or besides, of whole numbers."""
    reader = gguf.GGUFReader(str(source))
    w = gguf.GGUFWriter(str(out), reader.fields["general.architecture"].contents(), **options)
    for f in reader.fields.values():
        if not f.name.startswith("GGUF.") and f.name not in ("general.architecture", *(more or {})):
            w.add_key_value(f.name, f.contents(), f.types[0], sub_type=f.types[-1] if len(f.types) > 1 else None)
    for key, value in (more or {}).items():
        w.add_uint32(key, value)
    for t in reader.tensors:
        w.add_tensor(t.name, *tensor(t))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return out


def split(source, folder, stem, tensors, small_first=False):
    """folder/STEM-00001-of-0000N.gguf ...: at most `tensors` of them a part; `small_first`: none in the first. Their paths."""
    copy(source, folder / f"{stem}.gguf", lambda t: (t.data, None, t.tensor_type), split_max_tensors=tensors,
         small_first_shard=small_first)
    return sorted(folder.glob(f"{stem}-*-of-*.gguf"))
