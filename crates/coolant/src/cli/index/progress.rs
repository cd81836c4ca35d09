//! What somebody sees while the index grows: bars on a terminal, a line a document in a pipe.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::super::out::{Output, counted};
use super::report::Indexed;

/// Bars or lines.
pub(super) struct Progress {
    bars: Option<Bars>,
    total: u64,
    done: u64,
    chunks_done: u64,
}

struct Bars {
    all: MultiProgress,
    read: ProgressBar,
    indexed: ProgressBar,
    chunks: ProgressBar,
}

impl Progress {
    pub(super) fn new(output: &Output, files: usize) -> Self {
        let bars = (output.is_terminal() && !output.is_json()).then(|| Bars::new(files as u64));
        Self { bars, total: files as u64, done: 0, chunks_done: 0 }
    }

    pub(super) fn reading(&self, name: &str) {
        if let Some(bars) = &self.bars {
            bars.read.inc(1);
            bars.read.set_message(name.to_owned());
        }
    }

    pub(super) fn all_read(&self) {
        if let Some(bars) = &self.bars {
            bars.read.finish_with_message("");
        }
    }

    /// Chunks of documents that are not finished: those that have their vector, and all.
    pub(super) fn chunks_underway(&self, (done, total): (u64, u64)) {
        if let Some(bars) = &self.bars {
            bars.chunks.set_length(self.chunks_done + total);
            bars.chunks.set_position(self.chunks_done + done);
        }
    }

    /// A document is in the index; `None` if it was there before.
    pub(super) fn done(&mut self, name: &str, indexed: Option<Indexed>) {
        self.done += 1;
        if let Some(indexed) = indexed {
            self.chunks_done += indexed.embedded + indexed.reused;
        }
        match &self.bars {
            Some(bars) => bars.indexed.set_position(self.done),
            None => self.line(&match indexed {
                Some(Indexed { embedded, reused }) => {
                    let chunks = counted(embedded + reused, "chunk");
                    format!("indexed {name}: {chunks}, {embedded} embedded, {reused} reused")
                }
                None => format!("unchanged {name}"),
            }),
        }
    }

    pub(super) fn failed(&mut self, name: &str, code: &str, reason: &str) {
        self.done += 1;
        let text = format!("failed {name}: {code}: {reason}");
        match &self.bars {
            Some(bars) => {
                bars.indexed.set_position(self.done);
                // A terminal that takes no line has no use for it.
                let _ = bars.all.println(text);
            }
            None => self.line(&text),
        }
    }

    fn line(&self, text: &str) {
        use std::io::Write;
        let _ = writeln!(std::io::stderr().lock(), "[{}/{}] {text}", self.done, self.total);
    }

    pub(super) fn finish(&self) {
        if let Some(bars) = &self.bars {
            for bar in [&bars.read, &bars.indexed, &bars.chunks] {
                bar.finish_and_clear();
            }
        }
    }
}

impl Bars {
    fn new(files: u64) -> Self {
        let all = MultiProgress::new();
        let bar = |name: &'static str, length: u64| {
            let style = ProgressStyle::with_template("{prefix:>10} [{bar:32}] {pos}/{len} {wide_msg}");
            let bar = all.add(ProgressBar::new(length));
            if let Ok(style) = style {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(name);
            bar
        };
        let (read, indexed, chunks) = (bar("files", files), bar("documents", files), bar("chunks", 0));
        Self { all, read, indexed, chunks }
    }
}
