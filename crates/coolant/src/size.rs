//! The size of a value as JSON, found without writing it anywhere.

use serde_json::Value;

/// The largest payload, step output or result, in bytes of JSON.
pub(crate) const MAX: usize = 1024 * 1024;

/// A value is larger than [`MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes as JSON; at most {MAX} are kept. Keep large data elsewhere and its name here")]
pub(crate) struct TooLarge {
    pub(crate) bytes: usize,
}

/// Checks that the value may be stored.
pub(crate) fn check(value: &Value) -> Result<(), TooLarge> {
    let mut counter = Counter(0);
    // Neither a value nor the counter can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    if counter.0 > MAX { Err(TooLarge { bytes: counter.0 }) } else { Ok(()) }
}

struct Counter(usize);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mebibyte_passes_and_a_byte_more_does_not() {
        assert_eq!(check(&Value::String("x".repeat(MAX - 2))), Ok(()));
        assert_eq!(check(&Value::String("x".repeat(MAX - 1))), Err(TooLarge { bytes: MAX + 1 }));
    }
}
