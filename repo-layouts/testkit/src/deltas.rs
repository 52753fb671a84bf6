//! Packs of a few kilobytes whose deltas stand for hundreds of megabytes.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::git;

/// Bytes of each result.
const RESULT: usize = 15 << 20;

/// Bytes of what everything is based on in the end.
const BASE: usize = 64 << 10;

/// How deltas build on each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// So many, each on the one before; one more on each, so that it can't be forgotten.
    Chain(u32),
    /// So many beside each other.
    Fan(u32),
}

/// Puts such a pack into a repository, and a commit with all of its objects as files. Returns the commit.
///
/// # Panics
/// If stock Git doesn't take it.
pub fn bomb(repository: &Path, shape: Shape, parent: Option<&str>) -> String {
    let name = feed(git::command(repository).args(["index-pack", "--stdin"]), &pack(shape));
    let name = name.rsplit('\t').next().expect("the name of a pack").to_owned();
    let index = std::fs::read(repository.join(format!("objects/pack/pack-{name}.idx"))).expect("an index");
    let ids = feed(git::command(repository).arg("show-index"), &index);
    let entries = ids.lines().enumerate().map(|(n, line)| {
        let id = line.split(' ').nth(1).expect("an id");
        format!("100644 blob {id}\t{n:04}\n")
    });
    let tree = feed(git::command(repository).arg("mktree"), entries.collect::<String>().as_bytes());
    let mut commit = git::command(repository);
    commit.args(["commit-tree", "-m", "small", &tree]).args(parent.map(|parent| ["-p", parent]).iter().flatten());
    feed(&mut commit, b"")
}

/// Such a pack alone.
pub fn pack(shape: Shape) -> Vec<u8> {
    let mut pack = Pack { bytes: Vec::new(), objects: 0 };
    let base = pack.add(3, None, &crate::noise(BASE, 7));
    // A copy without any number means 64 KiB from the beginning.
    let grow = |n: u32| {
        let number = n.to_be_bytes();
        let copies = vec![0x80; RESULT / BASE - 1];
        let mut rest = vec![0xb0, 0xfc, 0xff, 4];
        rest.extend(number);
        delta(BASE, &[copies, rest].concat())
    };
    match shape {
        Shape::Fan(results) => (0..results).for_each(|n| {
            pack.add(6, Some(base), &grow(n));
        }),
        Shape::Chain(links) => {
            let mut last = pack.add(6, Some(base), &grow(0));
            for n in 1..=links {
                for leaf in [true, false] {
                    let number = (2 * n + u32::from(leaf)).to_be_bytes();
                    let size = (RESULT - 4).to_le_bytes();
                    let copy = [&[0xf0, size[0], size[1], size[2], 4], number.as_slice()].concat();
                    let added = pack.add(6, Some(last), &delta(RESULT, &copy));
                    if !leaf {
                        last = added;
                    }
                }
            }
        }
    }
    pack.seal()
}

/// The largest amount of memory that a program had at once, in bytes, and its output.
///
/// # Panics
/// If it can't be waited for.
pub fn peak_memory(mut child: Child) -> (u64, Output) {
    let status = format!("/proc/{}/status", child.id());
    let mut readers = Vec::new();
    let pipes = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
    for pipe in pipes {
        readers.push(pipe.map(|pipe| std::thread::spawn(|| drain(pipe))));
    }
    let mut peak = 0;
    let status = loop {
        peak = peak.max(high_water(&status).unwrap_or(0));
        match child.try_wait().expect("it can be waited for") {
            Some(status) => break status,
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let mut read = readers.into_iter().map(|one| one.map_or(Vec::new(), |one| one.join().expect("it is read")));
    let (stdout, stderr) = (read.next().unwrap_or_default(), read.next().unwrap_or_default());
    (peak, Output { status, stdout, stderr })
}

/// The largest amount of memory that a process had at once, in bytes, by its file in `/proc`.
pub fn high_water(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

fn reader(pipe: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(pipe)
}

fn drain(mut pipe: Box<dyn Read + Send>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

/// A delta on a base of this size with a result of [`RESULT`] bytes.
fn delta(base: usize, instructions: &[u8]) -> Vec<u8> {
    let mut delta = Vec::new();
    for mut size in [base, RESULT] {
        while size >= 0x80 {
            delta.push(size.to_le_bytes()[0] | 0x80);
            size >>= 7;
        }
        delta.push(size.to_le_bytes()[0]);
    }
    delta.extend(instructions);
    delta
}

/// A pack that is written by hand (gitformat-pack).
struct Pack {
    bytes: Vec<u8>,
    objects: u32,
}

impl Pack {
    /// Adds an object, or a delta on the one that begins at `base`; where it begins itself.
    fn add(&mut self, kind: u8, base: Option<usize>, data: &[u8]) -> usize {
        let begin = self.bytes.len();
        self.objects += 1;
        let mut size = data.len() >> 4;
        let first = kind << 4 | (data.len().to_le_bytes()[0] & 15);
        self.bytes.push(if size > 0 { first | 0x80 } else { first });
        while size > 0 {
            let byte = size.to_le_bytes()[0] & 0x7f;
            size >>= 7;
            self.bytes.push(if size > 0 { byte | 0x80 } else { byte });
        }
        if let Some(base) = base {
            let mut distance = begin - base;
            let mut offset = vec![distance.to_le_bytes()[0] & 0x7f];
            while distance >= 0x80 {
                distance = (distance >> 7) - 1;
                offset.insert(0, distance.to_le_bytes()[0] | 0x80);
            }
            self.bytes.extend(offset);
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).expect("deflated");
        self.bytes.extend(encoder.finish().expect("deflated"));
        begin
    }

    fn seal(self) -> Vec<u8> {
        let head = [b"PACK".as_slice(), &2u32.to_be_bytes(), &self.objects.to_be_bytes()].concat();
        let mut pack = [head, self.bytes].concat();
        let sum = feed(&mut Command::new("sha1sum"), &pack);
        let digits = sum.get(..40).expect("a checksum").as_bytes();
        pack.extend(
            digits
                .chunks(2)
                .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("hex digits"), 16).expect("hex digits")),
        );
        pack
    }
}

/// What a program answers to this input, without the last newline.
fn feed(command: &mut Command, input: &[u8]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let (mut pipe, bytes) = (child.stdin.take().expect("a pipe"), input.to_vec());
    let writer = std::thread::spawn(move || pipe.write_all(&bytes));
    let output = child.wait_with_output().expect("it ends");
    let _ = writer.join();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
