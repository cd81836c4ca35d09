//! What somebody sees while the index grows: bars on a terminal, a line a document in a pipe.

use std::io::Write;
use std::time::{Duration, Instant};

use coolant_core::time::spoken;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::out::{Output, counted};
use super::files::LeftOut;
use super::report::Indexed;

/// Bars or lines.
pub(super) struct Progress {
    bars: Option<Bars>,
    total: u64,
    done: u64,
    failed: u64,
    chunks_done: u64,
    /// What was said last about a wait, and when.
    waiting: Option<(String, Instant)>,
}

/// A wait that goes on is mentioned again in a pipe after so long.
const REMIND_AFTER: Duration = Duration::from_secs(30);

/// Documents that wait for another try.
pub(super) struct Waits {
    pub(super) count: u64,
    /// One of them.
    pub(super) name: String,
    pub(super) code: String,
    pub(super) message: String,
    /// Until the first of them is tried again.
    pub(super) wait: Duration,
}

struct Bars {
    all: MultiProgress,
    read: ProgressBar,
    indexed: ProgressBar,
    chunks: ProgressBar,
    /// What is being read, or waited for.
    note: ProgressBar,
}

impl Progress {
    pub(super) fn new(output: &Output, files: usize) -> Self {
        let bars = (output.is_terminal() && !output.is_json()).then(|| Bars::new(files as u64));
        Self { bars, total: files as u64, done: 0, failed: 0, chunks_done: 0, waiting: None }
    }

    /// Files whose document is neither in the index nor failed.
    pub(super) fn left(&self) -> u64 {
        self.total - self.done
    }

    pub(super) fn reading(&self, name: &str) {
        if let Some(bars) = &self.bars {
            bars.read.inc(1);
            bars.note.set_message(name.to_owned());
        }
    }

    /// All files are read, and the documents that are not in the index yet are submitted.
    pub(super) fn all_read(&self, to_index: usize) {
        match &self.bars {
            Some(bars) => bars.note.set_message(""),
            None if to_index > 0 => {
                self.line(&format!("all files read, {} to index", counted(to_index as u64, "document")));
            }
            None => {}
        }
    }

    /// Something at the paths that is no file.
    pub(super) fn left_out(&self, LeftOut { name, why }: &LeftOut) {
        self.say(&format!("left out {name}: {why}"));
    }

    /// Documents wait for another try, or wait no more.
    pub(super) fn waiting(&mut self, waits: Option<Waits>) {
        let Some(Waits { count, name, code, message, wait }) = waits else {
            if self.waiting.take().is_some()
                && let Some(bars) = &self.bars
            {
                bars.note.set_message("");
            }
            return;
        };
        let who = if count == 1 { name } else { counted(count, "document") };
        let again = spoken(wait);
        if let Some(bars) = &self.bars {
            bars.note.set_message(format!("waiting, {again} left: {code}"));
        }
        let is_known =
            self.waiting.as_ref().is_some_and(|(known, at)| *known == code && at.elapsed() < REMIND_AFTER);
        if !is_known {
            self.say(&format!("waiting: {who}: {code}: {message}; tries again in {again}"));
            self.waiting = Some((code, Instant::now()));
        }
    }

    /// Somebody asked to stop: the bars stay as they are. They cannot be taken away, as the terminal may have
    /// written `^C` and moved them from where they were drawn.
    pub(super) fn stopping(&self) {
        let mut text = "stopping after what is under way; once more stops at once".to_owned();
        if let Some(bars) = &self.bars {
            bars.all.set_draw_target(ProgressDrawTarget::hidden());
            text.insert(0, '\n');
        }
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// A line above the bars, or one of the pipe.
    fn say(&self, text: &str) {
        match &self.bars {
            // A terminal that takes no line has no use for it.
            Some(bars) => drop(bars.all.println(text)),
            None => self.line(text),
        }
    }

    /// Chunks of documents that are not finished: those that have their vector, and all.
    pub(super) fn chunks_underway(&self, (done, total): (u64, u64)) {
        if let Some(bars) = &self.bars
            && self.chunks_done + total > 0
        {
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
        self.failed += 1;
        match &self.bars {
            Some(bars) => {
                bars.indexed.set_position(self.done);
                bars.indexed.set_message(format!(", {} failed", self.failed));
            }
            None => self.line(&format!("failed {name}: {code}: {reason}")),
        }
    }

    fn line(&self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "[{}/{}] {text}", self.done, self.total);
    }

    pub(super) fn finish(&self) {
        if let Some(bars) = &self.bars {
            // Cleared as a whole: bars that are cleared one by one leave lines behind.
            let _ = bars.all.clear();
            bars.all.set_draw_target(ProgressDrawTarget::hidden());
        }
    }
}

impl Bars {
    fn new(files: u64) -> Self {
        let all = MultiProgress::new();
        let add = |name: &'static str, length: u64, template: &str| {
            let bar = all.add(ProgressBar::new(length).with_prefix(name));
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        };
        // As wide as the terminal, so that nothing breaks over its edge.
        let bar = "{prefix:>10} [{wide_bar}] {pos}/{len}{msg}";
        let (read, indexed) = (add("files", files, bar), add("documents", files, bar));
        indexed.tick();
        let (chunks, note) = (add("chunks", 0, bar), add("", 0, "{wide_msg}"));
        Self { all, read, indexed, chunks, note }
    }
}
