//! Encrypted PDFs of revision 5 (Acrobat 9), which open without a password.
//!
//! pdf_oxide reads the standard's revision 6 but takes the wrong key for its short-lived forerunner, and
//! then finds no text. Both keep the same file key and differ only in how the password wraps it, so the
//! key is unwrapped here and wrapped anew as revision 6 does, in an update at the end of the file. Nothing
//! else moves or changes.

use std::collections::HashMap;
use std::fmt::Write;

use memchr::memmem;
use pdf_oxide::PdfDocument;
use pdf_oxide::crypto::{AesKeySize, HashAlgorithm, Padding, active};
use pdf_oxide::object::Object;

/// The file as revision 6; `None` if it is not of revision 5 or needs a password.
pub(super) fn as_revision_6(bytes: &[u8], pdf: &PdfDocument) -> Option<Vec<u8>> {
    let trailer = pdf.trailer().as_dict()?;
    let encrypt = pdf.resolve_object(trailer.get("Encrypt")?).ok()?;
    let encrypt = encrypt.as_dict()?;
    if encrypt.get("R")?.as_integer()? != 5 {
        return None;
    }
    let (user, user_key) = rewrapped(encrypt.get("U")?.as_string()?, encrypt.get("UE")?.as_string()?)?;
    let root = trailer.get("Root")?.as_reference()?;
    let size = trailer.get("Size")?.as_integer()?;
    let start = previous_table(bytes)?;

    let mut update =
        format!("\nxref\n0 0\ntrailer\n<< /Size {size} /Root {} {} R /Prev {start}", root.id, root.r#gen);
    write!(update, " /ID [<00> <00>] /Encrypt << /Filter /Standard /V 5 /R 6 /Length 256").ok()?;
    write!(update, " /P {}", encrypt.get("P")?.as_integer()?).ok()?;
    write!(update, " /U {} /UE {}", hex(&user), hex(&user_key)).ok()?;
    for name in ["O", "OE", "Perms"] {
        write!(update, " /{name} {}", hex(encrypt.get(name)?.as_string()?)).ok()?;
    }
    for name in ["StmF", "StrF"] {
        let filter = encrypt.get(name).and_then(Object::as_name).unwrap_or("StdCF");
        let filter = if filter == "Identity" { filter } else { "StdCF" };
        write!(update, " /{name} /{filter}").ok()?;
    }
    if !encrypts_metadata(encrypt) {
        update.push_str(" /EncryptMetadata false");
    }
    update.push_str(" /CF << /StdCF << /CFM /AESV3 /AuthEvent /DocOpen /Length 32 >> >> >> >>");
    write!(update, "\nstartxref\n{}\n%%EOF\n", bytes.len() + 1).ok()?;
    Some([bytes, update.as_bytes()].concat())
}

fn encrypts_metadata(encrypt: &HashMap<String, Object>) -> bool {
    encrypt.get("EncryptMetadata").and_then(Object::as_bool).unwrap_or(true)
}

/// The offset of the file's cross-reference table, as its end gives it.
fn previous_table(bytes: &[u8]) -> Option<usize> {
    let at = memmem::rfind(bytes, b"startxref")? + b"startxref".len();
    let digits = bytes[at..].trim_ascii_start();
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// `U` and `UE` of revision 6 for the empty password, from those of revision 5.
fn rewrapped(user: &[u8], user_key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    const ZERO_IV: [u8; 16] = [0; 16];
    let (hash, validation_salt, key_salt) = (user.get(..32)?, user.get(32..40)?, user.get(40..48)?);
    if sha(HashAlgorithm::Sha256, validation_salt)? != hash {
        return None;
    }
    let cipher = active().symmetric();
    let wrapping = sha(HashAlgorithm::Sha256, key_salt)?;
    let file_key = cipher
        .aes_cbc_decrypt(AesKeySize::Aes256, &wrapping, &ZERO_IV, user_key.get(..32)?, Padding::None)
        .ok()?;
    let wrapping = hardened_hash(key_salt)?;
    let user_key =
        cipher.aes_cbc_encrypt(AesKeySize::Aes256, &wrapping, &ZERO_IV, &file_key, Padding::None).ok()?;
    let user = [&hardened_hash(validation_salt)?, validation_salt, key_salt].concat();
    Some((user, user_key))
}

fn sha(algorithm: HashAlgorithm, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut hasher = active().hasher(algorithm).ok()?;
    hasher.update(bytes);
    Some(hasher.finalize())
}

/// Algorithm 2.B of ISO 32000-2 for the empty password.
fn hardened_hash(salt: &[u8]) -> Option<Vec<u8>> {
    let mut key = sha(HashAlgorithm::Sha256, salt)?;
    let mut round = 0;
    loop {
        round += 1;
        let (cipher_key, iv) = (key.get(..16)?, key.get(16..32)?);
        let cipher = active().symmetric();
        let mixed = cipher
            .aes_cbc_encrypt(AesKeySize::Aes128, cipher_key, iv, &key.repeat(64), Padding::None)
            .ok()?;
        let remainder = mixed.get(..16)?.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 3;
        let algorithm = match remainder {
            0 => HashAlgorithm::Sha256,
            1 => HashAlgorithm::Sha384,
            _ => HashAlgorithm::Sha512,
        };
        key = sha(algorithm, &mixed)?;
        if round >= 64 && i32::from(*mixed.last()?) <= round - 32 {
            key.truncate(32);
            return Some(key);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = "<".to_owned();
    for byte in bytes {
        let _ = write!(text, "{byte:02X}");
    }
    text.push('>');
    text
}

#[cfg(test)]
mod tests {
    use pdf_oxide::PdfDocument;
    use pdf_oxide::crypto::{AesKeySize, HashAlgorithm, Padding, active};

    use super::{as_revision_6, hex, sha};

    /// A page encrypted as revision 5 with an empty password.
    fn revision_5() -> Vec<u8> {
        let cipher = active().symmetric();
        let encrypt = |key: &[u8], bytes: &[u8], padding| {
            cipher.aes_cbc_encrypt(AesKeySize::Aes256, key, &[0; 16], bytes, padding).unwrap()
        };
        let file_key = [7; 32];
        let (validation_salt, key_salt) = ([1; 8], [2; 8]);
        let hash = sha(HashAlgorithm::Sha256, &validation_salt).unwrap();
        let user = [hash.as_slice(), &validation_salt, &key_salt].concat();
        let wrapping = sha(HashAlgorithm::Sha256, &key_salt).unwrap();
        let user_key = encrypt(&wrapping, &file_key, Padding::None);
        let content = encrypt(&file_key, b"BT /F 12 Tf 60 700 Td (needle) Tj ET", Padding::Pkcs7);
        let content = [[0; 16].as_slice(), &content].concat();

        let mut out = b"%PDF-1.7\n".to_vec();
        let mut offsets = Vec::new();
        let mut object = |out: &mut Vec<u8>, bytes: &[u8]| {
            offsets.push(out.len());
            out.extend(format!("{} 0 obj\n", offsets.len()).into_bytes());
            out.extend(bytes);
            out.extend(b"\nendobj\n");
        };
        object(&mut out, b"<< /Type /Catalog /Pages 2 0 R >>");
        object(&mut out, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>");
        object(
            &mut out,
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R \
              /Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        );
        let stream = format!("<< /Length {} >>\nstream\n", content.len());
        object(&mut out, &[stream.as_bytes(), &content, b"\nendstream"].concat());
        let start = out.len();
        let entries: String = offsets.iter().map(|offset| format!("{offset:010} 00000 n \n")).collect();
        let owner = hex(&[0; 48]);
        let wrapped = hex(&[0; 32]);
        let tail = format!(
            "xref\n0 5\n0000000000 65535 f \n{entries}trailer\n<< /Size 5 /Root 1 0 R /ID [<00> <00>] /Encrypt \
             << /Filter /Standard /V 5 /R 5 /Length 256 /P -4 /U {} /UE {} /O {owner} /OE {wrapped} \
             /Perms {} /StmF /StdCF /StrF /StdCF /CF << /StdCF << /CFM /AESV3 /Length 32 >> >> >> >>\n\
             startxref\n{start}\n%%EOF\n",
            hex(&user),
            hex(&user_key),
            hex(&[0; 16]),
        );
        out.extend(tail.into_bytes());
        out
    }

    #[test]
    fn a_page_of_revision_5_is_read_as_revision_6() {
        let bytes = revision_5();
        let pdf = PdfDocument::from_bytes(bytes.clone()).unwrap();
        let pdf = PdfDocument::from_bytes(as_revision_6(&bytes, &pdf).unwrap()).unwrap();
        assert!(pdf.authenticate(b"").unwrap());
        assert_eq!(pdf.extract_text(0).unwrap().trim(), "needle");
        // It is as revision 6 now, so there is nothing more to do.
        assert!(as_revision_6(&bytes, &pdf).is_none());
    }
}
