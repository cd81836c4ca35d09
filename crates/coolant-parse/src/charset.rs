//! Bytes of unknown encoding to text.
//!
//! In this order: a byte order mark; UTF-16 without one; ISO-2022-JP by its escapes; what the file or its
//! sender declares, if the bytes decode without error; valid UTF-8; a guess from letter frequencies.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE};
use memchr::memmem;

use crate::sniff;

/// How far into the file a declaration is looked for, in bytes. HTML says 1024; real pages need more.
const DECLARATION_REACH: usize = 4096;

/// A text and the encoding it came in.
pub(crate) struct Decoded<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) encoding: &'static str,
}

/// Decodes `bytes`; `declared` is the sender's charset. What does not fit becomes U+FFFD.
pub(crate) fn decode<'a>(bytes: &'a [u8], declared: Option<&str>) -> Decoded<'a> {
    if let Some(decoded) = utf32(bytes) {
        return decoded;
    }
    let encoding = Encoding::for_bom(bytes)
        .map(|(encoding, _)| encoding)
        .or_else(|| utf16_without_bom(bytes))
        .or_else(|| iso_2022_jp(bytes))
        .or_else(|| declared_encoding(bytes, declared))
        .or_else(|| std::str::from_utf8(bytes).is_ok().then_some(UTF_8))
        .unwrap_or_else(|| guess(bytes));
    let (text, _) = encoding.decode_with_bom_removal(bytes);
    Decoded { text, encoding: encoding.name() }
}

/// UTF-32 with a byte order mark: no web encoding, so it is decoded here.
fn utf32(bytes: &[u8]) -> Option<Decoded<'_>> {
    let (read, encoding): (fn([u8; 4]) -> u32, _) = match bytes {
        // The same first two bytes as UTF-16LE, where the next would be a NUL character.
        [0xFF, 0xFE, 0, 0, ..] => (u32::from_le_bytes, "UTF-32LE"),
        [0, 0, 0xFE, 0xFF, ..] => (u32::from_be_bytes, "UTF-32BE"),
        _ => return None,
    };
    let text = bytes[4..]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|unit| char::from_u32(read(*unit)).unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect::<String>();
    Some(Decoded { text: text.into(), encoding })
}

/// UTF-16 gives itself away by NUL bytes: one half of each Latin letter, digit and space.
fn utf16_without_bom(bytes: &[u8]) -> Option<&'static Encoding> {
    let nuls = |parity: usize| bytes.iter().skip(parity).step_by(2).filter(|byte| **byte == 0).count();
    let (high_first, low_first) = (nuls(0), nuls(1));
    if high_first + low_first == 0 {
        return None;
    }
    let (encoding, most, least) = if low_first > high_first {
        (UTF_16LE, low_first, high_first)
    } else {
        (UTF_16BE, high_first, low_first)
    };
    if most * 3 >= bytes.len() && least * 20 <= most {
        return Some(encoding);
    }
    // Other scripts have few NULs, and a few on the other side, as in U+4E00. There the text has to make
    // sense, and must not make sense as UTF-8 with a few stray NULs.
    if std::str::from_utf8(bytes).is_ok_and(|text| !sniff::is_binary(text)) {
        return None;
    }
    [UTF_16LE, UTF_16BE].into_iter().find(|encoding| {
        let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
        let total = text.chars().count();
        let plausible = text.chars().filter(|c| is_common(*c)).count();
        !had_errors && plausible * 10 >= total * 9
    })
}

/// Letters and signs of the scripts that fill whole documents.
fn is_common(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{A0}'..='\u{24F}' | '\u{370}'..='\u{6FF}'
        | '\u{900}'..='\u{DFF}' | '\u{E00}'..='\u{E7F}' | '\u{2010}'..='\u{2040}'
        | '\u{3000}'..='\u{30FF}' | '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}' | '\u{FF00}'..='\u{FFEF}')
}

fn iso_2022_jp(bytes: &[u8]) -> Option<&'static Encoding> {
    let has_escape = bytes.windows(3).any(|w| matches!(w, b"\x1B$B" | b"\x1B$@" | b"\x1B(J" | b"\x1B(I"));
    (has_escape && bytes.is_ascii() && decodes(ISO_2022_JP, bytes)).then_some(ISO_2022_JP)
}

/// What the file says about itself is believed before what its sender says: the sender's is often a default.
fn declared_encoding(bytes: &[u8], sent: Option<&str>) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(DECLARATION_REACH)];
    let inside = declared_inside(head).map(|encoding| {
        // A declaration that could be read as ASCII proves that the file is not UTF-16.
        if encoding == UTF_16LE || encoding == UTF_16BE { UTF_8 } else { encoding }
    });
    let sent = sent.and_then(|label| Encoding::for_label_no_replacement(label.as_bytes()));
    let is_utf8 = std::str::from_utf8(bytes).is_ok();
    [inside, sent].into_iter().flatten().find(|encoding| {
        // Every byte is a letter in a single-byte encoding, so such a label is never refuted by an error;
        // valid UTF-8 refutes it: accented letters do not fall into its pattern by chance.
        let is_refuted = is_utf8 && encoding.is_single_byte();
        !is_refuted && decodes(encoding, bytes)
    })
}

fn declared_inside(head: &[u8]) -> Option<&'static Encoding> {
    let head = head.to_ascii_lowercase();
    let label = if head.trim_ascii_start().starts_with(b"<?xml") {
        let end = memmem::find(&head, b"?>").unwrap_or(head.len());
        label_after(&head[..end], b"encoding").or_else(|| meta_label(&head))
    } else {
        meta_label(&head)
    };
    Encoding::for_label_no_replacement(label?)
}

fn meta_label(head: &[u8]) -> Option<&[u8]> {
    let mut rest = head;
    while let Some(start) = memmem::find(rest, b"<meta") {
        let tag = &rest[start..];
        let end = memmem::find(tag, b">").unwrap_or(tag.len());
        if let Some(label) = label_after(&tag[..end], b"charset") {
            return Some(label);
        }
        rest = &tag[end..];
    }
    None
}

/// The value in `name="value"`, `name=value` and the like.
fn label_after<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let after = text[memmem::find(text, name)? + name.len()..].trim_ascii_start().strip_prefix(b"=")?;
    let value = after.trim_ascii_start();
    let value = value.strip_prefix(b"\"").or_else(|| value.strip_prefix(b"'")).unwrap_or(value);
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b';' | b'/' | b'>');
    Some(&value[..value.iter().position(is_end).unwrap_or(value.len())])
}

fn decodes(encoding: &'static Encoding, bytes: &[u8]) -> bool {
    encoding.decode_without_bom_handling_and_without_replacement(bytes).is_some()
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    detector.guess(None, Utf8Detection::Allow)
}

#[cfg(test)]
mod tests {
    use encoding_rs::{
        BIG5, EUC_JP, EUC_KR, Encoding, GBK, ISO_2022_JP, SHIFT_JIS, WINDOWS_1251, WINDOWS_1252,
    };

    use super::decode;

    const KOREAN: &str = "문서 색인 작업은 매일 새벽 두 시에 시작한다.\n실패한 조각만 다시 시도한다.\n";
    const JAPANESE: &str = "文書の索引は毎朝二時に始まります。失敗した断片だけをもう一度試します。";
    const CHINESE: &str = "文档索引每天凌晨两点开始。失败的片段将在三十秒后重试，其余的不再计算。";
    const RUSSIAN: &str = "Индексирование документов начинается каждый день в два часа ночи.";
    const FRENCH: &str = "L’indexation des documents commence à deux heures du matin, même en été.";

    fn utf16(text: &str, bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes_of).collect()
    }

    #[track_caller]
    fn assert_decodes(bytes: &[u8], declared: Option<&str>, text: &str, encoding: &str) {
        let decoded = decode(bytes, declared);
        assert_eq!((&*decoded.text, decoded.encoding), (text, encoding));
    }

    #[test]
    fn an_undeclared_encoding_is_found() {
        let encodings: [(&'static Encoding, &str); 7] = [
            (EUC_KR, KOREAN),
            (SHIFT_JIS, JAPANESE),
            (EUC_JP, JAPANESE),
            (ISO_2022_JP, JAPANESE),
            (GBK, CHINESE),
            (WINDOWS_1251, RUSSIAN),
            (WINDOWS_1252, FRENCH),
        ];
        for (encoding, text) in encodings {
            assert_decodes(&encoding.encode(text).0, None, text, encoding.name());
        }
        assert_decodes(KOREAN.as_bytes(), None, KOREAN, "UTF-8");
    }

    #[test]
    fn utf16_needs_no_mark() {
        for text in [FRENCH, KOREAN, RUSSIAN, JAPANESE] {
            // Japanese has no space to give it away, but a line end.
            let text = format!("{text}\n");
            assert_decodes(&utf16(&text, u16::to_le_bytes), None, &text, "UTF-16LE");
            assert_decodes(&utf16(&text, u16::to_be_bytes), None, &text, "UTF-16BE");
        }
    }

    #[test]
    fn a_mark_decides_and_is_no_text() {
        let marked = format!("\u{FEFF}{KOREAN}");
        assert_decodes(marked.as_bytes(), Some("euc-kr"), KOREAN, "UTF-8");
        assert_decodes(&utf16(&marked, u16::to_le_bytes), None, KOREAN, "UTF-16LE");
        assert_decodes(&utf16(&marked, u16::to_be_bytes), None, KOREAN, "UTF-16BE");
        let utf32: Vec<u8> = marked.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        assert_decodes(&utf32, None, KOREAN, "UTF-32LE");
    }

    #[test]
    fn a_declaration_is_believed_where_the_bytes_agree() {
        let page = format!("<html><meta charset='big5'><p>{}", "文件索引");
        assert_decodes(&BIG5.encode(&page).0, None, &page, "Big5");
        let page = "<?xml version='1.0' encoding=\"windows-1251\"?><p>Да</p>";
        assert_decodes(&WINDOWS_1251.encode(page).0, None, page, "windows-1251");
        assert_decodes(&WINDOWS_1251.encode("Да").0, Some("windows-1251"), "Да", "windows-1251");
    }

    #[test]
    fn a_false_declaration_is_not_believed() {
        assert_decodes(&EUC_KR.encode(KOREAN).0, Some("utf-8"), KOREAN, "EUC-KR");
        assert_decodes("é Korean 한글".as_bytes(), Some("iso-8859-1"), "é Korean 한글", "UTF-8");
        let page = "<meta charset=utf-16><p>é";
        assert_decodes(page.as_bytes(), None, page, "UTF-8");
        assert_decodes(b"plain", Some("no such charset"), "plain", "UTF-8");
    }
}
