"""Writes generated files of each kind that precast reads, and in `answers.json` what pandas, NumPy, Pillow and
safetensors read from them, or null where they refuse: `readers.py FOLDER SEED`. `readers.py FOLDER` then checks the
tensors that precast wrote. `cargo xtask nightly readers` starts both."""

import csv
import io
import json
import random
import struct
import sys
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas
import safetensors
from PIL import Image

warnings.simplefilter("ignore")
FOLDER, ANSWERS = Path(sys.argv[1]), []


def add(kind, case, data, reads, **more):
    """Writes a file, with the answer of each reader."""
    name = f"{len(ANSWERS):05}.{kind}"
    (FOLDER / name).write_bytes(data)
    for reader, read in reads.items():
        try:
            answer = read(data)
        except Exception:
            answer = None
        ANSWERS.append({"reader": reader, "case": case, "file": name, "answer": answer} | more)


def array(a, dtype, name=""):
    return {"name": name, "shape": list(a.shape), "bytes": np.ascontiguousarray(a, dtype).tobytes().hex()}


# Tables of plain numbers with another cell, or with another text.
CELLS = ["abc", "True", "", " ", " 1.5 ", "\xa01", "1\u200b5", "\u22125", "\u0661", "NA", "nan", "inf", "-inf", "5%"]
CELLS += "+3 .5 5. . - +-1 --1 -0.0 007 1e5 1E-5 1e+05 1d5 1e 1e5.5 1.5f 1_000 0x1F 1e-46 1e39 1e400 4.9e-324".split()
CELLS += ["0.1000000014901161193847656251", "2.2250738585072011e-308", "9007199254740993", "18446744073709551616"]
CELLS += ["1" * 30, "1" * 330, "0." + "123456789" * 40, "1 2", "1,5", "1 234,5", "1'234", "1.234,5", "1.234.567"]
CELLS += ["1,23", '"1.5"', '" 1"', '"1" ', ' "1"', '""', '"1"5', '1"5', '"1""5"', '"a', '"a;b"', '"a,b|c\td"']
CELLS += ['"a\nb"', '"a\r\nb"'] + ["1 2"] * 4  # which few formats read as a number
TEXTS = {
    "plain": lambda t, e: t,
    "byte order mark": lambda t, e: "\ufeff" + ('"a"' + t[1:] if t[0] == "a" else t),
    "no last end": lambda t, e: t.removesuffix(e),
    "blank lines": lambda t, e: e + t.replace(e, e + e),
    "line of spaces": lambda t, e: t + "  " + e,
    "short row": lambda t, e: t + "1" + e,
    "row of two": lambda t, e: t + "1¦2" + e,
    "long row": lambda t, e: t + "1¦2¦3¦4¦5" + e,
    "separators at the ends": lambda t, e: t.replace(e, "¦" + e),
    "mixed ends": lambda t, e: t.replace(e, "\r\n", 2).replace("\r\n", "\n", 1),
    "other name": lambda t, e: '  "a ""b"" \u00e9"' + t[1:],
    "same names": lambda t, e: t.replace("b", "a", 1),
    "no name": lambda t, e: t[1:],
    "numbers as names": lambda t, e: t.translate({ord(c): str(ord(c)) for c in "abcd"}),
    "open quote": lambda t, e: t + '"1¦2' + e,
    "comment": lambda t, e: "# a table" + e + t,
    "zero byte": lambda t, e: t + "\0" + e,
    "only a header": lambda t, e: t.split(e)[0] + e,
    "empty": lambda t, e: "",
    "latin-1": lambda t, e: "\udce9" + t,
}
FORMATS = [(".", None)] * 4 + [(",", None), (",", "."), (".", ","), (".", "'"), (",", " ")]


def tables(r):
    for case in [*CELLS, *TEXTS] * 12:
        end, header, (decimal, thousands) = r.choice(["\n", "\r\n", "\r"]), r.random() < 0.7, r.choice(FORMATS)
        separator, columns = r.choice([c for c in ",;\t|" if c not in (decimal, thousands)]), r.randint(1, 4)
        number = lambda: r.choice([str(r.randint(-99, 99)), repr(r.gauss(0, 1e3)), f"{r.gauss(0, 1):.6e}"])
        rows = [[number().replace(".", decimal) for _ in range(columns)] for _ in range(r.randint(1, 6))]
        if case not in TEXTS:
            r.choice(rows)[r.randrange(columns)] = case.replace(".", decimal) if r.random() < 0.5 else case
        text = "".join("¦".join(row) + end for row in [list("abcd"[:columns])] * header + rows)
        text = TEXTS.get(case, TEXTS["plain"])(text, end).replace("¦", separator)
        options = {"delimiter": separator, "header": header, "decimal": decimal, "thousands": thousands}
        reads = {"csv cells": lambda data: cells(data, separator), "csv numbers": lambda data: numbers(data, **options)}
        add("csv", case, text.encode(errors="surrogateescape"), reads, options=options)


def cells(data, separator):
    """Cells without the spaces around them, in rows of one length. Text may follow a quoted cell."""
    text = data.decode("utf-8-sig")
    read = lambda strict: [*csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)]
    try:
        rows = read(True)
    except csv.Error as error:
        if "expected after" not in str(error):
            raise
        rows = read(False)
    rows = [[cell.strip() for cell in row] for row in rows if row]
    (width,) = {len(row) for row in rows}
    return [array(np.frombuffer("\x1f".join(sum(rows, [])).encode(), "u1"), "u1") | {"shape": [len(rows), width]}]


def numbers(data, delimiter, header, decimal, thousands):
    """pandas decides what is a number. With `thousands` its values are not always the nearest, so Python reads them."""
    options = {"sep": delimiter, "header": 0 if header else None}
    options |= {"keep_default_na": False, "na_values": ["", "NA", "nan"]}
    frame = pandas.read_csv(io.BytesIO(data), decimal=decimal, thousands=thousands, **options)
    assert len(frame) and isinstance(frame.index, pandas.RangeIndex) and all(of.kind in "iuf" for of in frame.dtypes)
    text = pandas.read_csv(io.BytesIO(data), dtype=str, **options).to_numpy(str, na_value="nan")
    return [array(np.char.replace(np.char.replace(text, thousands or "\0", ""), decimal, ".").astype(float), "<f8")]


# Arrays.
DTYPES = ["i1", "u1", "?"] + [order + of + size for order in "<>" for of in "fiu" for size in "248"]
SPECIAL = {
    "not finite": np.array([[1, np.nan], [np.inf, -np.inf]], np.float32),
    "beyond f32": np.array([[1e39, 1.0]]),
    "negative": np.array([[-1, 2]]),
    "u64": np.array([[2**64 - 1, 2**63 + 1, 2**53 + 1]], np.uint64),
    "complex": np.ones((2, 2), np.complex64),
    "words": np.array(["ab", "c"]),
    "longdouble": np.ones(3, np.longdouble),
    "objects": np.array([1, "a"], object),
    "record": np.zeros(2, [("a", "<f4")]),
    "halves": np.array([[2**-24, 65504, -0.0, 2**-14]], np.float16),
    "rounded": np.array([[1e-45, -1e-39, 1 + 2**-24 + 2**-50]]),
}
DAMAGES = {
    "bytes after": lambda data: data + b"\0\1",
    "cut data": lambda data: data[:-1],
    "cut header": lambda data: data[:40],
    "magic": lambda data: b"\x93NUMPX" + data[6:],
    "version 9": lambda data: data[:6] + b"\x09" + data[7:],
    "minor version": lambda data: data[:7] + b"\x01" + data[8:],
    "another key": lambda data: data.replace(b"}        ", b"'a': 1, }", 1),
    "no comma": lambda data: data.replace(b", 'fort", b"  'fort", 1),
    "native order": lambda data: data.replace(b"'<", b"'=", 1),
    "text after": lambda data: data.replace(b"}    ", b"}  a ", 1),
}


def npy(a, version=(1, 0)):
    file = io.BytesIO()
    np.lib.format.write_array(file, a, version)
    return file.getvalue()


def values(r, dtype, shape):
    """Integers of 32 and 64 bits are not negative: they are indices."""
    dtype, size = np.dtype(dtype), int(np.prod(shape))
    if dtype.kind == "f":
        some = [r.gauss(0, 10.0 ** r.randint(-8, 4)) for _ in range(size)]
    else:
        info = np.iinfo(dtype if dtype.kind != "b" else np.uint8)
        some = [r.randint(info.min if dtype.itemsize < 4 else 0, info.max) >> r.randint(0, 7) for _ in range(size)]
    return np.array(np.array(some, dtype).reshape(shape), order=r.choice("CF"))


def arrays(r):
    for dtype in DTYPES:
        for shape in [(), (0,), (3, 0), (7,), (3, 4), (2, 3, 4), (5, 1, 2, 3)]:
            yield str(shape), npy(values(r, dtype, shape), r.choice([(1, 0), (2, 0), (3, 0)]))
    yield from ((case, npy(a)) for case, a in SPECIAL.items())
    for case, damage in DAMAGES.items():
        yield from ((case, damage(npy(values(r, dtype, (3, 4))))) for dtype in ["<f4", "<i8", "u1"])


def tensor(a, name="", of_data=False):
    """The array in a dtype of precast. In data, all but signed integers of 32 and 64 bits are numbers."""
    assert a.dtype.kind in "fiub" and a.dtype.itemsize <= 8
    if of_data and not (a.dtype.kind == "i" and a.dtype.itemsize >= 4):
        a = a.astype(np.float64)
    assert a.dtype.kind != "u" or not a.size or a.max() < 2**63
    return array(a, {"f": "<f4", "b": "|b1"}.get(a.dtype.kind, "<i8"), name)


def npz(data):
    with np.load(io.BytesIO(data)) as file:
        return [tensor(file[name], name) for name in dict.fromkeys(file.files)]


def archives(r):
    names = ["arr_0", "layers/0/weight", "größe", "a b", "x.npy", ".hidden"]
    for dtype in DTYPES:
        for case, save in [("stored", np.savez), ("deflated", np.savez_compressed)]:
            file, shapes = io.BytesIO(), [(), (0, 2), (5,), (3, 4)]
            save(file, **{name: values(r, dtype, shape) for name, shape in zip(r.sample(names, 4), shapes)})
            yield case, file.getvalue()

    def packed(*entries, method=zipfile.ZIP_STORED, large=False):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, data in entries:
                with archive.open(name, "w", force_zip64=large) as entry:
                    entry.write(data)
        return file.getvalue()

    x, y = npy(values(r, "<f4", (3, 4))), npy(values(r, "<i8", (5,)))
    plain = packed(("x.npy", x), ("y.npy", y))
    yield "zip64", packed(("x.npy", x), large=True)
    yield "twice", packed(("x.npy", x), ("x.npy", y))
    yield "no ending", packed(("x", x), ("y", y))
    yield "no array", packed(("x.npy", x), ("a.txt", b"a"))
    yield "folder", packed(("a/", b""), ("a/x.npy", x))
    yield "bzip2", packed(("x.npy", x), method=zipfile.ZIP_BZIP2)
    yield "bytes before", b"#!/bin/sh\n" + plain
    yield "bytes after", plain + b"abc"
    yield "cut", plain[:-30]
    yield "checksum", plain.replace(x[-8:], b"12345678", 1)
    yield "cut array", packed(("x.npy", x[:-3]))
    yield "long array", packed(("x.npy", x + b"12"))
    yield "nothing", packed()


# Images.
def png(r, bits, color, samples, chunks=(), interlaced=False):
    def filtered(part):
        back, up = max(1, bits * samples.shape[2] // 8), 0
        for row in part.reshape(part.shape[0], -1):
            all_bits = np.unpackbits(row.astype(">u2").view(np.uint8).reshape(-1, 2), axis=1)
            line = np.packbits(all_bits[:, 16 - bits :]).astype(int)
            up = up + 0 * line
            left, corner = (np.concatenate([np.zeros(back, int), of])[: len(line)] for of in (line, up))
            paeth = np.abs(np.stack([up - corner, left - corner, left + up - 2 * corner])).argmin(0)
            kind = r.randrange(5)
            by = [0, left, up, (left + up) // 2, paeth.choose([left, up, corner])][kind]
            yield bytes([kind]) + ((line - by) % 256).astype(np.uint8).tobytes()
            up = line

    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [samples[y::dy, x::dx] for y, x, dy, dx in (passes if interlaced else [(0, 0, 1, 1)])]
    packed = zlib.compress(b"".join(line for part in parts if part.size for line in filtered(part)))
    header = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, color, 0, 0, interlaced)
    cut, file = r.randint(0, len(packed)), b"\x89PNG\r\n\x1a\n"
    for name, data in [(b"IHDR", header), *chunks, (b"IDAT", packed[:cut]), (b"IDAT", packed[cut:]), (b"IEND", b"")]:
        file += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return file


def pngs(r):
    some = lambda h, w, n, most: np.array([r.randrange(most) for _ in range(h * w * n)]).reshape(h, w, n)
    wide = [(color, bits, n) for color, n in ((2, 3), (4, 2), (6, 4)) for bits in (8, 16)]
    for color, bits, n in [(0, bits, 1) for bits in (1, 2, 4, 8, 16)] + [(3, bits, 1) for bits in (1, 2, 4, 8)] + wide:
        for extra in ["", "tRNS", "gAMA"] * 4:
            colors, interlaced = r.randint(1, 2**bits) if color == 3 else 2**bits, r.random() < 0.5
            samples = some(r.randint(1, 19), r.randint(1, 19), n, colors)
            chunks = [(b"gAMA", struct.pack(">I", 90910)), (b"sRGB", b"\0")] * (extra == "gAMA")
            chunks += [(b"PLTE", r.randbytes(3 * colors))] * (color == 3)
            if extra == "tRNS" and color in (0, 2, 3):
                alphas = r.randbytes(r.randint(1, colors)) if color == 3 else samples[0, 0].astype(">u2").tobytes()
                chunks.append((b"tRNS", alphas))
            data = png(r, bits, color, samples, chunks, interlaced)
            yield f"color {color} of {bits} bits {extra}{interlaced * ' interlaced'}", data, samples * (bits == 16)
    plain = png(r, 8, 2, some(5, 9, 3, 256))
    yield "cut", plain[:60], 0
    yield "no end", plain[:-12], 0
    yield "bytes after", plain + b"abc", 0
    yield "checksum of pixels", plain[:-13] + bytes([plain[-13] ^ 1]) + plain[-12:], 0
    yield "checksum of header", plain[:29] + b"\0" + plain[30:], 0
    yield "no pixels", plain[:33] + plain[-12:], 0
    yield "color beyond", png(r, 8, 3, some(2, 2, 1, 9), [(b"PLTE", bytes(3))]), 0
    yield "no palette", png(r, 8, 3, some(2, 2, 1, 9)), 0


def jpegs(r):
    kinds = {case: ("RGB", {"subsampling": case}) for case in ("4:4:4", "4:2:2", "4:2:0")}
    kinds |= {"not transformed": ("RGB", {"keep_rgb": True}), "restarts": ("L", {"restart_marker_blocks": 2})}
    kinds |= {case: ("L", {}) for case in ("grey", "orientation", "cut", "bytes after")} | {"CMYK": ("CMYK", {})}
    for case, (mode, options) in kinds.items():
        for i, quality in enumerate([1, 10, 30, 50, 75, 90, 95, 100] * 3):
            y, x = np.mgrid[0 : r.randint(1, 60), 0 : r.randint(5, 60)]
            waves = [127 + 120 * np.sin(x / r.uniform(2, 20) + y / r.uniform(2, 20)) + r.gauss(0, 20) for _ in mode]
            pixels = np.stack(waves, -1).clip(0, 255).astype(np.uint8)
            exif, file = Image.Exif(), io.BytesIO()
            exif[274] = r.randint(2, 8) if case == "orientation" else 1
            options |= {"quality": quality, "progressive": i % 3 == 1, "optimize": i % 3 == 2, "exif": exif}
            Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode).save(file, "JPEG", **options)
            data = file.getvalue() + b"abc" * (case == "bytes after")
            yield case, data[: r.randint(2, len(data) - 3)] if case == "cut" else data, 0


def image(data, grey, samples):
    """Pixels from 0 to 255; those of 16 bits, of which Pillow keeps eight, from their samples."""
    met = Image.open(io.BytesIO(data))
    pixels = np.array(met.convert("L" if grey else "RGB"), np.float32).reshape(met.height, met.width, -1)
    if np.any(samples):
        rgb = samples[..., :3] if samples.shape[2] > 2 else samples[..., [0, 0, 0]]
        pixels = rgb @ [[0.299], [0.587], [0.114]] / 257 if grey else rgb / 257
    return [array(pixels.transpose(2, 0, 1), "<f4")]


# Tensors.
READ = {"BOOL": 8, "F16": 16, "BF16": 16, "F32": 32, "I64": 64, "F64": 64}
BITS = READ | {"U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64}


def tensors(r):
    def file(header, data=b"", length=None):
        text = (header if isinstance(header, str) else json.dumps(header)).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def entry(dtype, shape, start, **more):
        size = int(np.prod(shape)) * BITS[dtype] // 8
        return {"dtype": dtype, "shape": shape, "data_offsets": [start, start + size]} | more

    for dtype in [*BITS] * 4:
        header, at = {"__metadata__": {"format": "pt", "größe": "\n"}} if r.random() < 0.5 else {}, 0
        for name in r.sample(["a", "layers.0.weight", "größe", "a b", "\"'\\", "", "\U0001f600"], 3):
            header[name] = entry(dtype, r.choice([[], [0], [2, 0], [1], [5], [3, 4], [2, 1, 3]]), at)
            at = header[name]["data_offsets"][1]
        data = bytes(r.randrange(2) for _ in range(at)) if dtype == "BOOL" else r.randbytes(at)
        yield dtype, file(json.dumps(header) + " " * r.randint(0, 9), data)
    for case, (a, b, length) in {
        "overlap": ([0, 8], [4, 8], 8), "gap": ([0, 8], [12, 16], 16), "order": ([4, 12], [0, 4], 12),
        "bytes after": ([0, 8], [8, 12], 13), "cut": ([0, 8], [8, 12], 11), "reversed": ([8, 0], [8, 12], 12),
    }.items():  # fmt: skip
        header = {"a": entry("F32", [2], 0, data_offsets=a), "b": entry("F32", [1], 0, data_offsets=b)}
        yield case, file(header, bytes(length))
    for more in [{"shape": [3]}, {"dtype": "f32"}, {"shape": [-2]}, {"shape": [2**40] * 2}, {"more": 1}]:
        yield f"entry {more}", file({"a": entry("F32", [2], 0) | more}, bytes(8))
    twice = '"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}'
    yield "same names", file(f"{{{twice},{twice}}}", b"\1")
    yield "bool of 2", file({"a": entry("BOOL", [2], 0)}, b"\2\1")
    yield "metadata of numbers", file({"__metadata__": {"a": 1}})
    for text in ["{}", "[]", " {}", "{}{}", "\ufeff{}", "{}\0\0", '{"__metadata__":{"a":"1","a":"2"}}']:
        yield f"header {text!r}", file(text)
    yield from ((f"length {length}", file({}, length=length)) for length in (0, 1, 10**6, 2**62))


def entries(data, is_header):
    met = sorted(safetensors.deserialize(data))
    assert is_header or all(of["dtype"] in READ for _, of in met)

    def content(of):
        data = bytes(map(bool, of["data"])) if of["dtype"] == "BOOL" else bytes(of["data"])
        return struct.pack("<Q", len(data)) if is_header else data

    return [{"name": name, "shape": of["shape"], "bytes": content(of).hex()} for name, of in met]


def write(r):
    FOLDER.mkdir(parents=True, exist_ok=True)
    tables(r)
    for case, data in arrays(r):
        add("npy", case, data, {"npy": lambda data: [tensor(np.load(io.BytesIO(data)), of_data=True)]})
    for case, data in archives(r):
        add("npz", case, data, {"npz": npz})
    for kind, images in [("png", pngs(r)), ("jpg", jpegs(r))]:
        for case, data, samples in images:
            read = lambda grey: lambda data: image(data, grey, samples)
            add(kind, case, data, {f"{kind} rgb": read(False), f"{kind} grey": read(True)})
    for case, data in tensors(r):
        read = lambda is_header: lambda data: entries(data, is_header)
        add("safetensors", case, data, {"safetensors": read(False), "safetensors header": read(True)})
    (FOLDER / "answers.json").write_text(json.dumps(ANSWERS))


def check():
    """Reads the tensors that precast wrote in both formats."""
    for case in json.loads((FOLDER / "answers.json").read_text()):
        path = FOLDER / "written" / case["file"]
        if case["reader"] in ("npz", "safetensors") and case["answer"] and path.with_suffix(".npz").exists():
            right = sorted(case["answer"], key=lambda of: of["name"])
            assert entries(path.with_suffix(".safetensors").read_bytes(), False) == right, path
            with np.load(path.with_suffix(".npz")) as file:
                for a, of in ((file[of["name"]], of) for of in right):
                    data = bytes.fromhex(of["bytes"])
                    if a.nbytes == 2 * len(data):  # bfloat16, which NumPy does not have
                        data = (np.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
                    assert (list(a.shape), a.tobytes()) == (of["shape"], data), (path, of["name"])


write(random.Random(int(sys.argv[2]))) if len(sys.argv) > 2 else check()
