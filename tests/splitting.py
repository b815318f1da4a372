"""A GGUF cut into the parts of a split model, by the `gguf` package."""
import gguf


def split(source, folder, stem, tensors, small_first=False):
    """folder/STEM-00001-of-0000N.gguf ...: at most `tensors` of them a part; `small_first`: none in the first. Their paths."""
    reader = gguf.GGUFReader(str(source))
    arch = reader.fields["general.architecture"].contents()
    w = gguf.GGUFWriter(str(folder / f"{stem}.gguf"), arch, split_max_tensors=tensors, small_first_shard=small_first)
    for f in reader.fields.values():
        if not f.name.startswith("GGUF.") and f.name != "general.architecture":
            w.add_key_value(f.name, f.contents(), f.types[0], sub_type=f.types[-1] if len(f.types) > 1 else None)
    for t in reader.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return sorted(folder.glob(f"{stem}-*-of-*.gguf"))
