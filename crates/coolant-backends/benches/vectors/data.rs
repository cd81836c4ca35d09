//! Vectors that behave like those of embeddings: the same every time.

/// A small generator of numbers; its quality does not matter here.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// About normal.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() * 1.414 - 4.242
    }
}

/// What a set of vectors is like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Texts of 300 subjects, which differ in 48 ways, as a model sees them; some noise in every number.
    Meaning,
    /// Texts of 60 words each, cut into pieces of three letters that are counted: `lexical-1`.
    Spelling,
}

pub(crate) fn vectors(kind: Kind, count: usize, dimensions: usize) -> Vec<Vec<f32>> {
    match kind {
        Kind::Meaning => meaning(count, dimensions),
        Kind::Spelling => spelling(count, dimensions),
    }
}

fn meaning(count: usize, dimensions: usize) -> Vec<Vec<f32>> {
    const WAYS: usize = 48;
    let mut numbers = Numbers::new(7);
    let mut normals = |count: usize| -> Vec<f32> { (0..count).map(|_| numbers.normal()).collect() };
    let ways: Vec<Vec<f32>> = (0..WAYS).map(|_| normals(dimensions)).collect();
    let subjects: Vec<Vec<f32>> = (0..300).map(|_| normals(WAYS)).collect();
    (0..count)
        .map(|n| {
            let (own, noise) = (normals(WAYS), normals(dimensions));
            let mut vector: Vec<f32> = noise.iter().map(|x| x * 0.8).collect();
            for ((way, subject), own) in ways.iter().zip(&subjects[n * 7919 % subjects.len()]).zip(own) {
                let weight = subject * 0.6 + own;
                vector.iter_mut().zip(way).for_each(|(x, y)| *x += weight * y);
            }
            vector
        })
        .collect()
}

fn spelling(count: usize, dimensions: usize) -> Vec<Vec<f32>> {
    let mut numbers = Numbers::new(11);
    let words: Vec<Vec<u8>> = (0..20_000)
        .map(|_| {
            (0..3 + numbers.below(7)).map(|_| b'a' + numbers.below(26).min(numbers.below(26)) as u8).collect()
        })
        .collect();
    (0..count)
        .map(|_| {
            let mut vector = vec![0.0; dimensions];
            for _ in 0..60 {
                // Some words are much more frequent than others.
                let rank = (words.len() as f32).powf(numbers.unit()) as usize;
                for piece in words[rank.min(words.len() - 1)].windows(3) {
                    let hash = piece.iter().fold(0x811c_9dc5_u32, |hash, byte| {
                        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
                    });
                    vector[(hash >> 8) as usize % dimensions] += if hash & 1 == 0 { 1.0 } else { -1.0 };
                }
            }
            vector
        })
        .collect()
}

/// The ten nearest by the cosine, exactly.
pub(crate) fn nearest(all: &[Vec<f32>], query: &[f32]) -> Vec<usize> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    let mut scored: Vec<(f32, usize)> = all
        .iter()
        .enumerate()
        .map(|(n, vector)| (dot(vector, query) / dot(vector, vector).sqrt(), n))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(10).map(|(_, n)| n).collect()
}
