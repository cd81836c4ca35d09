//! In which language people are told things: each call over HTTP in the one that it asks for, a command in
//! the one of its locale. It belongs to whoever is answered, not to what is said, so it is not handed through
//! every function on the way.
//!
//! Elsewhere: what is said (`coolant_core::say`).

use std::future::Future;
use std::sync::OnceLock;

pub use coolant_core::say::Language;

tokio::task_local! {
    static CALL: Language;
}

static PROCESS: OnceLock<Language> = OnceLock::new();

/// The language of the call that is being answered, else of the command, else English.
#[must_use]
pub fn current() -> Language {
    let call = CALL.try_with(|language| *language).ok();
    call.or_else(|| PROCESS.get().copied()).unwrap_or_default()
}

/// Answers in that language for as long as the work goes on.
pub async fn within<T>(language: Language, work: impl Future<Output = T>) -> T {
    CALL.scope(language, work).await
}

/// Says something in that language.
pub fn saying<T>(language: Language, say: impl FnOnce() -> T) -> T {
    CALL.sync_scope(language, say)
}

/// Sets the language of a command, once, at its start.
pub(crate) fn speak(language: Language) {
    let _ = PROCESS.set(language);
}
