"""Records what a program does to the files below a folder, with strace.

Names, inodes and offsets are followed from the first call on, so each operation names the file or
folder that it changes and not a path, which a later rename changes.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = [
    "CALLS",
    "MAX_STRING_BYTES",
    "ROOT_INODE",
    "Operation",
    "Reader",
    "Recording",
    "Tree",
    "record",
]

CALLS = (
    *("openat", "write", "pwrite64", "ftruncate", "fsync", "fdatasync"),
    *("/^rename", "/^unlink", "/^mkdir", "/^link", "rmdir"),
)
# Larger than any write of the programs.
MAX_STRING_BYTES = 1024 * 1024
ROOT_INODE = 0

Kind = Literal["name", "write", "truncate", "sync", "promise"]

_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)(?:<([^>]*)>)?")
_UNFINISHED = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)$")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_DESCRIPTOR = re.compile(r"(AT_FDCWD|\d+)<([^>]*)>")


@dataclass
class Tree:
    """Names and contents: folders are dictionaries from name to inode, files are bytes."""

    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT_INODE: {}})
    files: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Tree:
        """Read the folders and files below a folder."""
        tree = cls()
        for path in sorted(root.rglob("*")):
            tree.add(str(path.relative_to(root)), None if path.is_dir() else path.read_bytes())
        return tree

    def write(self, root: Path) -> None:
        """Write the folders and files below an empty folder."""
        for path, content in sorted(self.paths().items()):
            if content is None:
                (root / path).mkdir()
            else:
                (root / path).write_bytes(content)

    def copy(self) -> Tree:
        """Return a copy that can be changed."""
        return Tree({ino: dict(names) for ino, names in self.folders.items()}, dict(self.files))

    def new_inode(self) -> int:
        """Return a number that no file or folder has."""
        return max(*self.folders, *self.files, 0) + 1

    def add(self, path: str, content: bytes | None) -> None:
        """Add a file, or without content a folder."""
        folder, name = self.parent(path)
        inode = self.folders[folder].setdefault(name, self.new_inode())
        if content is None:
            self.folders.setdefault(inode, {})
        else:
            self.files[inode] = content

    def parent(self, path: str) -> tuple[int, str]:
        """Return the folder of a path and its last name."""
        *folders, name = Path(path).parts
        inode = ROOT_INODE
        for each in folders:
            inode = self.folders[inode][each]
        return inode, name

    def find(self, path: str) -> int | None:
        """Return the inode of a path."""
        inode: int | None = ROOT_INODE
        for name in Path(path).parts:
            inode = None if inode is None else self.folders.get(inode, {}).get(name)
        return inode

    def paths(self) -> dict[str, bytes | None]:
        """Return every path with its content; None for a folder."""
        found: dict[str, bytes | None] = {}
        waiting = [("", ROOT_INODE)]
        while waiting:
            above, inode = waiting.pop()
            for name, child in self.folders[inode].items():
                path = f"{above}{name}"
                if child in self.folders:
                    found[path] = None
                    waiting.append((f"{path}/", child))
                else:
                    found[path] = self.files.get(child, b"")
        return found


@dataclass(frozen=True)
class Operation:
    """One call. What it changes depends on the kind.

    - `name`: each of `names` is a folder, a name and the inode that it gets, or None; `inode` is a
      folder that is made.
    - `write`: `data` at `offset` of the file `inode`; `truncate`: its size becomes `offset`.
    - `sync`: the inode is made durable.
    - `promise`: the program has promised `data`, which must survive from now on.
    """

    kind: Kind
    text: str
    inode: int = -1
    names: tuple[tuple[int, str, int | None], ...] = ()
    offset: int = 0
    data: bytes = b""

    def apply(self, tree: Tree) -> None:
        """Change a tree."""
        if self.kind == "name" and self.inode >= 0:
            tree.folders.setdefault(self.inode, {})
        for folder, name, inode in self.names:
            if inode is None:
                tree.folders[folder].pop(name, None)
            else:
                tree.folders.setdefault(folder, {})[name] = inode
        if self.kind == "write":
            old = tree.files.get(self.inode, b"").ljust(self.offset, b"\0")
            end = self.offset + len(self.data)
            tree.files[self.inode] = old[: self.offset] + self.data + old[end:]
        elif self.kind == "truncate":
            old = tree.files.get(self.inode, b"")
            tree.files[self.inode] = old[: self.offset].ljust(self.offset, b"\0")


@dataclass(frozen=True)
class Recording:
    """The durable tree before, and the operations in their order."""

    before: Tree
    operations: tuple[Operation, ...]

    def without(self, dropped: int) -> Recording:
        """Return the recording without one operation."""
        kept = (*self.operations[:dropped], *self.operations[dropped + 1 :])
        return Recording(self.before, kept)


def record(
    command: Sequence[str], root: Path, promises: Path, output: Path, *, has_threads: bool = True
) -> Recording:
    """Run a command and return what it did below `root`, which is durable at the start.

    The command writes its promises to the file `promises`, one JSON object with one call each. The
    promise `{"copied": FOLDER, "to": PATH, "files": [NAME, ...]}` states that another process made
    the folder PATH below the root, with durable content like that of FOLDER, of which only some
    files are of interest. Without `has_threads` such a process is not recorded.
    """
    tree = Tree.of(root)
    follow = ["-f"] if has_threads else []
    options = [f"-s{MAX_STRING_BYTES}", f"-o{output}", f"-etrace={','.join(CALLS)}"]
    done = subprocess.run(
        ["strace", *follow, "-y", "-xx", *options, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return Recording(tree, tuple(Reader(root, promises, tree).operations(output)))


class Reader:
    """Turns the lines of strace into operations, and follows names, inodes and offsets."""

    def __init__(self, root: Path, promises: Path | None, tree: Tree) -> None:
        self._root = f"{root}/"
        self._promises = str(promises)
        self._before = tree
        self.tree = tree.copy()
        self._offsets: dict[str, int | None] = {}
        self._next = tree.new_inode()

    def operations(self, output: Path) -> Iterator[Operation]:
        """Yield the operations of one file of strace; `tree` is what they have led to."""
        for call, arguments, result, opened in _calls(output):
            for operation in self._read(call, arguments, result, opened):
                operation.apply(self.tree)
                yield operation

    def _read(
        self, call: str, arguments: list[str], result: int, opened: str
    ) -> Iterator[Operation]:
        if call == "openat":
            yield from self._open(arguments, result, opened)
        elif call in ("write", "pwrite64", "ftruncate", "fsync", "fdatasync"):
            yield from self._change(call, arguments, result)
        elif call.startswith(("rename", "unlink", "mkdir", "link", "rmdir")):
            paths = [self._inside(path) for path in _paths(arguments)]
            inside = [path for path in paths if path]
            if len(inside) != len(paths):
                if inside:
                    raise ValueError(f"{call} crosses the border of the folder: {paths}")
                return
            yield from self._rename(call, inside)

    def _open(self, arguments: list[str], result: int, opened: str) -> Iterator[Operation]:
        [path] = _paths(arguments)
        inside = self._inside(path)
        if inside is None or "O_DIRECTORY" in arguments[2]:
            return
        flags = arguments[2].split("|")
        inode = self.tree.find(inside)
        if inode is None:
            if "O_CREAT" not in flags:
                raise ValueError(f"{inside} was not recorded")
            folder, name = self.tree.parent(inside)
            inode = self._new_inode()
            yield Operation("name", f"create {inside}", names=((folder, name, inode),))
        elif "O_TRUNC" in flags and self.tree.files.get(inode):
            yield Operation("truncate", f"empty {inside}", inode)
        self._offsets[f"{result}<{opened}"] = None if "O_APPEND" in flags else 0

    def _change(self, call: str, arguments: list[str], result: int) -> Iterator[Operation]:
        match = _DESCRIPTOR.match(arguments[0])
        path = _decoded(match[2]).decode() if match else ""
        if path != self._promises and not f"{path}/".startswith(self._root):
            return
        data = _decoded(arguments[1].strip('"'))[:result] if "write" in call else b""
        if path == self._promises:
            promised = json.loads(data)
            if "copied" in promised:
                yield self._copied(**promised)
            else:
                facts = " ".join(str(fact) for fact in promised.values() if len(str(fact)) < 40)
                yield Operation("promise", f"promise {facts}", data=data)
        inside = self._inside(path)
        inode = None if inside is None else self.tree.find(inside)
        if inode is None or match is None or (inode in self.tree.folders and "sync" not in call):
            return
        if "sync" in call:
            yield Operation("sync", f"{call} {inside or 'the root'}", inode)
        elif call == "ftruncate":
            size = int(arguments[1])
            yield Operation("truncate", f"truncate {inside} to {size}", inode, offset=size)
        else:
            key = f"{match[1]}<{match[2]}"
            offset = int(arguments[3]) if call == "pwrite64" else self._offsets[key]
            if offset is None:
                offset = len(self.tree.files.get(inode, b""))
            elif call == "write":
                self._offsets[key] = offset + result
            text = f"write {len(data)} bytes to {inside}"
            yield Operation("write", text, inode, offset=offset, data=data)

    def _rename(self, call: str, paths: list[str]) -> Iterator[Operation]:
        folder, name = self.tree.parent(paths[0])
        names: tuple[tuple[int, str, int | None], ...]
        made = -1
        if call.startswith("mkdir"):
            made = self._new_inode()
            names = ((folder, name, made),)
        elif call.startswith(("unlink", "rmdir")):
            names = ((folder, name, None),)
        else:
            inode = self.tree.find(paths[0])
            target_folder, target = self.tree.parent(paths[1])
            names = ((target_folder, target, inode),)
            if call.startswith("rename"):
                # Two names of one file: nothing happens.
                if self.tree.find(paths[1]) == inode:
                    return
                names = ((folder, name, None), *names)
        yield Operation("name", f"{call} {' '.join(paths)}", made, names=names)

    def _copied(self, copied: str, to: str, files: list[str]) -> Operation:
        folder, name = self.tree.parent(to)
        made = self._new_inode()
        for tree in (self._before, self.tree):
            tree.folders[made] = {}
        for file in files:
            inode = self._new_inode()
            for tree in (self._before, self.tree):
                tree.folders[made][file] = inode
                tree.files[inode] = Path(copied, file).read_bytes()
        return Operation("name", f"another process makes {to}", made, ((folder, name, made),))

    def _inside(self, path: str) -> str | None:
        """Return a path below the root; empty for the root itself, None for any other."""
        if path + "/" == self._root:
            return ""
        return path.removeprefix(self._root) if path.startswith(self._root) else None

    def _new_inode(self) -> int:
        self._next += 1
        return self._next


def _calls(output: Path) -> Iterator[tuple[str, list[str], int, str]]:
    """Yield the calls that succeeded, in the order of their ends."""
    unfinished: dict[str, str] = {}
    with output.open(encoding="ascii") as lines:
        for line in lines:
            text = line.rstrip("\n")
            if match := _UNFINISHED.match(text):
                unfinished[match[1]] = match[2]
                continue
            if match := _RESUMED.match(text):
                text = f"{match[1]} {unfinished.pop(match[1])}{match[2]}"
            if (match := _LINE.match(text)) and int(match[3]) >= 0:
                yield match[1], match[2].split(", "), int(match[3]), match[4] or ""


def _paths(arguments: list[str]) -> list[str]:
    """Return the paths among the arguments, made absolute by the descriptor before them."""
    found: list[str] = []
    above = ""
    for argument in arguments:
        if match := _DESCRIPTOR.match(argument):
            above = _decoded(match[2]).decode()
        elif argument.startswith('"'):
            path = _decoded(argument.strip('"')).decode()
            found.append(str(Path(above, path)))
    return found


def _decoded(text: str) -> bytes:
    return bytes(int(byte, 16) for byte in _HEX.findall(text))
