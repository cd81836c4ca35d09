//! Mending compressed streams whose checksum is wrong.
//!
//! A flipped byte in a checksum damages nothing that is read, but a decoder that meets it at the end throws
//! away what it unpacked last: the end of the page. So the checksums are made right before the file is
//! read. They are as long as before, so nothing moves in the file.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress, Status};
use memchr::memmem;

/// How much is unpacked for this in all, in bytes. What lies beyond is read as it is.
const MOST_UNPACKED: usize = 256 << 20;

/// How far back a stream's dictionary is searched for its kind, in bytes.
const DICTIONARY_REACH: usize = 400;

/// A file with right checksums.
pub(super) struct Mended<'a> {
    /// The same bytes where all checksums were right.
    pub(super) bytes: Cow<'a, [u8]>,
    /// Whether its streams unpack to more than a page can need.
    pub(super) is_bomb: bool,
}

/// Makes the checksums of all streams right, but for pictures.
pub(super) fn checksums(bytes: &[u8]) -> Mended<'_> {
    let mut mended = Cow::Borrowed(bytes);
    let mut budget = MOST_UNPACKED;
    for at in memmem::find_iter(bytes, b"stream") {
        let Some(start) = data_start(bytes, at) else { continue };
        if is_picture(bytes, at) {
            continue;
        }
        if let Some(unpacked) = Unpacked::from(&bytes[start..], &mut budget) {
            let end = start + unpacked.checksum_at;
            let right = unpacked.checksum.to_be_bytes();
            let is_closed = bytes.get(end + 4..).is_some_and(is_end_of_stream);
            if is_closed && bytes[end..end + 4] != right {
                mended.to_mut()[end..end + 4].copy_from_slice(&right);
            }
        }
        if budget == 0 {
            break;
        }
    }
    Mended { bytes: mended, is_bomb: budget == 0 }
}

/// Where the data of the stream begins whose keyword stands `at`, if it is a zlib stream.
fn data_start(bytes: &[u8], at: usize) -> Option<usize> {
    let after = at + b"stream".len();
    let start = match bytes.get(after..)? {
        [b'\r', b'\n', ..] => after + 2,
        [b'\n', ..] => after + 1,
        _ => return None,
    };
    let header: [u8; 2] = bytes.get(start..start + 2)?.try_into().ok()?;
    let is_zlib =
        header[0] & 0x0F == 8 && u16::from_be_bytes(header).is_multiple_of(31) && header[1] & 0x20 == 0;
    is_zlib.then_some(start)
}

/// Pictures are most of a large file and hold no text.
fn is_picture(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[at.saturating_sub(DICTIONARY_REACH)..at];
    let dictionary = memmem::rfind(before, b"endobj").map_or(before, |object| &before[object..]);
    memmem::find(dictionary, b"/Image").is_some()
}

fn is_end_of_stream(rest: &[u8]) -> bool {
    let blanks = rest.iter().take(3).take_while(|byte| byte.is_ascii_whitespace()).count();
    rest[blanks..].starts_with(b"endstream")
}

/// What a zlib stream should end with.
struct Unpacked {
    /// The offset of the checksum from the start of the stream.
    checksum_at: usize,
    checksum: u32,
}

impl Unpacked {
    fn from(stream: &[u8], budget: &mut usize) -> Option<Self> {
        // Without its header and checksum, or a wrong one would end the unpacking.
        let mut inflate = Decompress::new(false);
        let mut read = 2;
        let mut checksum = Adler32::new();
        let mut out = vec![0; 64 << 10];
        loop {
            let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(stream.get(read..)?, &mut out, FlushDecompress::None).ok()?;
            let consumed = usize::try_from(inflate.total_in() - before_in).ok()?;
            let written = usize::try_from(inflate.total_out() - before_out).ok()?;
            read += consumed;
            checksum.update(out.get(..written)?);
            *budget = budget.saturating_sub(written);
            match status {
                Status::StreamEnd if stream.len() >= read + 4 => {
                    return Some(Self { checksum_at: read, checksum: checksum.value() });
                }
                Status::Ok | Status::BufError if *budget > 0 && (consumed > 0 || written > 0) => {}
                _ => return None,
            }
        }
    }
}

/// The checksum of zlib.
struct Adler32 {
    low: u32,
    high: u32,
}

impl Adler32 {
    const MODULUS: u32 = 65521;

    fn new() -> Self {
        Self { low: 1, high: 0 }
    }

    fn update(&mut self, bytes: &[u8]) {
        // As many as fit into the sums before they overflow.
        for chunk in bytes.chunks(5552) {
            for byte in chunk {
                self.low += u32::from(*byte);
                self.high += self.low;
            }
            self.low %= Self::MODULUS;
            self.high %= Self::MODULUS;
        }
    }

    fn value(&self) -> u32 {
        self.high << 16 | self.low
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::checksums;

    fn stream(text: &str, checksum_flip: u8) -> Vec<u8> {
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        let mut packed = packed.finish().unwrap();
        *packed.last_mut().unwrap() ^= checksum_flip;
        [b"<< /Filter /FlateDecode >>\nstream\r\n".as_slice(), &packed, b"\nendstream"].concat()
    }

    #[test]
    fn a_wrong_checksum_is_made_right() {
        assert_eq!(*checksums(&stream("the end of the page", 0xFF)).bytes, *stream("the end of the page", 0));
    }

    #[test]
    fn a_right_file_is_not_copied() {
        let right = stream("the end of the page", 0);
        assert!(matches!(checksums(&right).bytes, std::borrow::Cow::Borrowed(_)));
    }
}
