//! The embedder that is always there: no network, no key, no download, no money.
//!
//! It knows no meaning. Two texts are near each other if they share spelling: words, parts of words, and
//! pairs of Korean or CJK characters. "car" and "automobile" are strangers to it, and so are a Korean
//! text and its translation. Beside full text it finds compounds, inflections and misspellings.

use async_trait::async_trait;

use super::{BatchLimits, EmbedError, Embedder, EmbedderClass, Embeddings, ModelId, Usage};
use crate::chunk::estimate_tokens;
use crate::terms::for_each_run;

const DIMENSION: usize = 512;

/// Hashed character n-grams in 512 dimensions, of length 1, the same bits on every machine.
///
/// For each word its whole and its 3- to 5-grams, with marks for its ends; for each run of Korean or CJK
/// its single characters and its pairs. Each n-gram adds 1 to or takes 1 from the dimension that its
/// FNV-1a hash names; the square roots of these sums, signs kept, are the vector before it is brought
/// to length 1. (Feature hashing: Weinberger and others, 2009. N-grams of a word: fastText, 2016.)
#[derive(Debug, Clone)]
pub struct Lexical1 {
    id: ModelId,
}

impl Lexical1 {
    /// The embedder; making one costs nothing.
    #[must_use]
    pub fn new() -> Self {
        let dimension = Some(DIMENSION as u32);
        Self { id: ModelId { provider: "local".into(), model: "lexical-1".into(), dimension } }
    }

    /// The vector of one text: all zero for the empty text and for no other.
    #[must_use]
    pub fn vector(text: &str) -> Vec<f32> {
        let mut sums = [0_i64; DIMENSION];
        for_each_run(
            text,
            |run, paired| {
                if paired { add_pairs(run, &mut sums) } else { add_word(run, &mut sums) }
            },
        );
        if sums.iter().all(|&sum| sum == 0) && !text.is_empty() {
            // No letter at all, or n-grams that cancelled each other: the text as a whole stands in.
            add(text.as_bytes(), 1, &mut sums);
        }
        // With square roots for values, the square of the vector's length is the sum of the absolute
        // sums: an integer. One division and one root a number are left, both exact by IEEE 754.
        let total: i64 = sums.iter().map(|sum| sum.abs()).sum();
        let value = |sum: i64| (sum.abs() as f64 / total.max(1) as f64).sqrt() * sum.signum() as f64;
        sums.iter().map(|&sum| value(sum) as f32).collect()
    }
}

impl Default for Lexical1 {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Embedder for Lexical1 {
    fn id(&self) -> &ModelId {
        &self.id
    }

    fn class(&self) -> EmbedderClass {
        EmbedderClass::Lexical
    }

    fn upstream(&self) -> Option<&str> {
        None
    }

    fn batch_limits(&self) -> BatchLimits {
        BatchLimits::default()
    }

    async fn embed(&self, inputs: &[String]) -> Result<Embeddings, EmbedError> {
        if let Some(index) = inputs.iter().position(|input| input.trim().is_empty()) {
            return Err(EmbedError::BlankInput { index });
        }
        let input_tokens = inputs.iter().map(|input| u64::from(estimate_tokens(input))).sum();
        Ok(Embeddings {
            vectors: inputs.iter().map(|input| Self::vector(input)).collect(),
            usage: Usage { input_tokens, estimated: true, reported: None },
            model: Some(self.id.model.clone()),
            headers: Vec::new(),
        })
    }
}

fn add_pairs(run: &str, sums: &mut [i64; DIMENSION]) {
    let chars: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    for n in 1..=2 {
        for gram in chars.windows(n + 1) {
            add(&run.as_bytes()[gram[0]..gram[n]], n as i64, sums);
        }
    }
}

fn add_word(word: &str, sums: &mut [i64; DIMENSION]) {
    let marked = format!("<{word}>");
    let chars: Vec<usize> = marked.char_indices().map(|(at, _)| at).chain([marked.len()]).collect();
    add(marked.as_bytes(), 1, sums);
    for n in 3..=5 {
        for gram in chars.windows(n + 1) {
            add(&marked.as_bytes()[gram[0]..gram[n]], 1, sums);
        }
    }
}

fn add(gram: &[u8], weight: i64, sums: &mut [i64; DIMENSION]) {
    let hash = mix(fnv1a(gram));
    let sign = if hash >> 63 == 0 { weight } else { -weight };
    sums[hash as usize % DIMENSION] += sign;
}

/// 64-bit FNV-1a: fixed for ever, unlike the standard library's hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finisher of MurmurHash3: the top bit of FNV-1a hardly changes between short texts.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The place of the nearest text; all vectors have length one.
    fn best(query: &str, texts: &[&str]) -> usize {
        let query = Lexical1::vector(query);
        let near =
            |text: &str| -> f32 { Lexical1::vector(text).iter().zip(&query).map(|(a, b)| a * b).sum() };
        (0..texts.len()).max_by(|&a, &b| near(texts[a]).total_cmp(&near(texts[b]))).unwrap()
    }

    #[test]
    fn shared_spelling_is_near() {
        let texts = [
            "How leases are renewed while a paid call is running",
            "The weather in Seoul is mild in spring",
            "데이터베이스 연결이 끊어지면 작업자는 임대를 잃는다",
            "서울의 봄 날씨는 온화하다",
            "データベースの接続が切れる",
        ];
        for (query, nearest) in [
            ("renewing a lease", 0),
            ("wether in sprnig", 1),
            ("데이터베이스를 연결", 2),
            ("봄날씨", 3),
            ("接続", 4),
        ] {
            assert_eq!(best(query, &texts), nearest, "{query}");
        }
    }

    /// If this fails, every stored vector is worth nothing: it must then be `lexical-2`.
    #[test]
    fn the_vectors_are_those_of_lexical_1() {
        let bytes: Vec<u8> = ["A lease ends by itself.", "임대는 끝난다", "…", "日本語 and English, 3.14"]
            .iter()
            .flat_map(|text| Lexical1::vector(text).into_iter().flat_map(f32::to_le_bytes))
            .collect();
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            "136d3f8519902f882234989261eec697975c9a8547c97ffd492628a45e4fd257"
        );
    }

    #[test]
    fn case_and_width_do_not_matter() {
        assert_eq!(Lexical1::vector("LEASE"), Lexical1::vector("ｌｅａｓｅ"));
        assert_eq!(Lexical1::vector(""), vec![0.0; DIMENSION]);
    }

    #[tokio::test]
    async fn a_blank_text_is_refused() {
        let inputs = ["a".to_owned(), " \n".to_owned()];
        let error = Lexical1::new().embed(&inputs).await.unwrap_err();
        assert!(matches!(error, EmbedError::BlankInput { index: 1 }));
        assert_eq!(Lexical1::new().embed(&inputs[..1]).await.unwrap().dimension(), Some(512));
    }

    proptest! {
        #[test]
        fn every_text_has_a_vector_of_length_one(text in "\\PC{1,40}|[가-힣 ]{1,20}|[a-z ]{1,60}") {
            let vector = Lexical1::vector(&text);
            let length: f64 = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            prop_assert!((length - 1.0).abs() < 1e-5, "{}", length);
        }
    }
}
