"""What a cubin holds, read off its ELF sections: kernels, memory that outlives a call, functions from outside."""

import struct
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SYMBOL_TABLE = 2  # SHT_SYMTAB
_WRITABLE = 1  # SHF_WRITE
_FUNCTION = 2  # STT_FUNC
_OBJECT = 1  # STT_OBJECT
_ENTRY = 0x10  # in st_other: a kernel, not a function that kernels call
_UNDEFINED = 0  # SHN_UNDEF
_ELSEWHERE = 0xFFFF  # SHN_XINDEX
_PER_BLOCK = ".nv.shared"  # writable, and gone with the block
_COPY = ".nv.merc"  # from sm_100 on: the section whose name follows it once more, for a driver that translates it


@dataclass(frozen=True, kw_only=True)
class Cubin:
    """The contents of a cubin by name."""

    kernels: tuple[str, ...]
    writable: tuple[str, ...]  # variables in device memory; a section's own name for bytes that no variable claims
    static_bytes: int  # of those variables and sections together
    imported: tuple[str, ...]  # functions that the driver would supply: malloc, vprintf


@dataclass(frozen=True, kw_only=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int

    @property
    def outlives_calls(self) -> bool:
        return bool(self.flags & _WRITABLE) and not self.name.startswith(_PER_BLOCK)


@dataclass(frozen=True, kw_only=True)
class _Symbol:
    name: str
    kind: int
    other: int
    section: int


def read_cubin(image: bytes) -> Cubin:
    """The kernels, writable variables and imported functions of a cubin. Raises ValueError where it is not one."""
    try:
        sections = _sections(image)
        symbols = _symbols(image, sections)
    except (struct.error, IndexError) as error:
        raise ValueError(f"not a cubin that can be read: {error}") from error
    return Cubin(
        kernels=tuple(s.name for s in symbols if s.kind == _FUNCTION and s.other & _ENTRY and s.section != _UNDEFINED),
        writable=_writable(sections, symbols),
        static_bytes=sum(section.size for _, section in _lasting(sections)),
        imported=tuple(s.name for s in symbols if s.kind == _FUNCTION and s.section == _UNDEFINED and s.name),
    )


def _lasting(sections: list[_Section]) -> list[tuple[int, _Section]]:
    """The sections of device memory that outlive a call, by their number, without their copies."""
    originals = {section.name for section in sections}
    return [
        (index, section)
        for index, section in enumerate(sections)
        if section.outlives_calls
        and not (section.name.startswith(_COPY) and section.name.removeprefix(_COPY) in originals)
    ]


def _writable(sections: list[_Section], symbols: list[_Symbol]) -> tuple[str, ...]:
    names: list[str] = []
    for index, section in _lasting(sections):
        inside = [s.name for s in symbols if s.kind == _OBJECT and s.section == index]
        names.extend(inside or [section.name] * (section.size > 0))  # ptxas takes 4 GiB for 0 bytes
    return tuple(names)


def _sections(image: bytes) -> list[_Section]:
    if image[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", image, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", image, 58)
    if entry_size != _SECTION.size:
        raise ValueError(f"section headers of {entry_size} bytes; expected {_SECTION.size}")
    first = _SECTION.unpack_from(image, table)
    count = count or first[5]  # of 65,280 sections and more their number stands here, and so does that of the names
    names_index = first[6] if names_index == _ELSEWHERE else names_index
    headers = [_SECTION.unpack_from(image, table + number * entry_size) for number in range(count)]
    names = headers[names_index][4]
    return [
        _Section(name=_text(image, names + name), kind=kind, flags=flags, offset=offset, size=size, link=link)
        for name, kind, flags, _, offset, size, link, *_ in headers
    ]


def _symbols(image: bytes, sections: list[_Section]) -> list[_Symbol]:
    symbols: list[_Symbol] = []
    for section in sections:
        if section.kind == _SYMBOL_TABLE:
            names = sections[section.link].offset
            for offset in range(section.offset, section.offset + section.size, _SYMBOL.size):
                name, info, other, index, _, _ = _SYMBOL.unpack_from(image, offset)
                symbols.append(_Symbol(name=_text(image, names + name), kind=info & 15, other=other, section=index))
    return symbols


def _text(image: bytes, start: int) -> str:
    end = image.index(b"\0", start)
    return image[start:end].decode("utf-8", errors="replace")
