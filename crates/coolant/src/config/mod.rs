//! Configuration: flags beat the environment, the environment beats the file, the file beats the defaults.
//! Nothing else in the program reads the environment.

mod file;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coolant_ai::Secret;
use coolant_ai::embed::EmbeddingSettings;
use coolant_backends::Address;
use coolant_core::prices::Prices;
use coolant_core::retention::Retention;
use coolant_core::say::Language;
use coolant_parse::Limits;

use file::{Days, File};

/// Where the store is unless somebody says otherwise.
pub const DEFAULT_STORE: &str = "sqlite:coolant-data/coolant.db";
/// Where the server listens unless somebody says otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
/// OpenAI's own endpoint and embedding model, for whoever gives its key alone.
const OPENAI: (&str, &str) = ("https://api.openai.com/v1", "text-embedding-3-small");

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where jobs and documents are.
    pub store: Address,
    /// Where the server listens.
    pub listen: SocketAddr,
    /// What is logged, as `tracing` filters are written.
    pub log: String,
    /// The embedder.
    pub embedding: EmbeddingSettings,
    /// What a document may cost to read.
    pub parser: Limits,
    /// A second reader of PDFs, if the machine has one.
    pub pdftotext: Option<PathBuf>,
    /// Jobs that a worker process runs at once.
    pub concurrency: usize,
    /// How long a stopping process lets jobs go on.
    pub drain: Duration,
    /// What paid calls cost: list prices, and before them those of the file.
    pub prices: Prices,
    /// Where leaky locks are, if not in the store.
    pub locks: Option<LockSettings>,
    /// What people are told things in.
    pub language: Language,
    /// How long what is over is kept.
    pub retention: Retention,
    /// Whether `NO_COLOR` asks for plain output.
    pub plain: bool,
}

/// Leaky locks in Redis or Valkey.
#[derive(Debug, Clone)]
pub struct LockSettings {
    /// `redis://[:PASSWORD@]HOST[:PORT][/DATABASE]`.
    pub url: Secret,
    /// What the keys of all locks begin with.
    pub prefix: String,
}

/// Settings as flags gave them; `None` where a flag was not given.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--store`.
    pub store: Option<String>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--log`.
    pub log: Option<String>,
    /// `--listen`.
    pub listen: Option<String>,
    /// `--concurrency`.
    pub concurrency: Option<usize>,
    /// `--locks`.
    pub locks: Option<String>,
}

/// What is wrong with a setting, and what it should be.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file `{path}`")]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no configuration: a wrong or unknown key is named in the source.
    #[error("the configuration file `{path}` is wrong")]
    Syntax {
        /// Its path.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value cannot be what it is meant to be.
    #[error("`{name}` is wrong: {reason}")]
    Value {
        /// The flag, variable or key.
        name: String,
        /// What it should be.
        reason: String,
    },
}

/// Where variables come from: the process, or a test.
pub trait Environment {
    /// The value of a variable that is set and not empty.
    fn get(&self, name: &str) -> Option<String>;

    /// Where programs are looked for.
    fn path(&self) -> OsString {
        OsString::new()
    }
}

/// The process's own environment.
pub struct Process;

impl Environment for Process {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn path(&self) -> OsString {
        std::env::var_os("PATH").unwrap_or_default()
    }
}

impl Settings {
    /// Reads flags, environment and file.
    ///
    /// # Errors
    /// The first thing that is wrong, by its name.
    pub fn load(flags: &Flags, env: &dyn Environment) -> Result<Self, ConfigError> {
        let file = match flags.config.clone().or_else(|| env.get("COOLANT_CONFIG").map(PathBuf::from)) {
            Some(path) => File::read(&path)?,
            None => File::default(),
        };
        let pick = |flag: &Option<String>, name: &str, kept: &Option<String>| {
            flag.clone().or_else(|| env.get(name)).or_else(|| kept.clone())
        };
        let store = pick(&flags.store, "COOLANT_STORE", &file.store);
        let store = Address::parse(store.as_deref().unwrap_or(DEFAULT_STORE))
            .map_err(|error| wrong("store", error.to_string()))?;
        let listen = pick(&flags.listen, "COOLANT_LISTEN", &file.listen);
        let listen = listen.as_deref().unwrap_or(DEFAULT_LISTEN).parse();
        let concurrency = match flags.concurrency {
            Some(jobs) => Some(jobs),
            None => number(env, "COOLANT_CONCURRENCY")?.or(file.concurrency),
        };
        let drain = number(env, "COOLANT_DRAIN_SECONDS")?.or(file.drain_seconds).unwrap_or(30);
        Ok(Self {
            store,
            listen: listen
                .map_err(|_| wrong("listen", "must be an address and port, such as 127.0.0.1:7070"))?,
            log: pick(&flags.log, "COOLANT_LOG", &file.log).unwrap_or_else(|| "warn,coolant=info".into()),
            embedding: embedding(env, &file)?,
            parser: parser(env, &file)?,
            pdftotext: file.parser.pdftotext.clone().or_else(|| coolant_parse::find_pdftotext(&env.path())),
            concurrency: concurrency.unwrap_or(4).clamp(1, 1000),
            drain: Duration::from_secs(drain),
            prices: prices(&file)?,
            locks: locks(pick(&flags.locks, "COOLANT_LOCKS", &file.locks), env, &file)?,
            language: Language::of_locale(&locale(env)),
            retention: retention(env, &file)?,
            plain: env.get("NO_COLOR").is_some(),
        })
    }

    /// Whether the server would be reachable from elsewhere.
    #[must_use]
    pub fn listens_in_public(&self) -> bool {
        !self.listen.ip().is_loopback()
    }
}

fn wrong(name: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { name: name.into(), reason: reason.into() }
}

fn number<T: std::str::FromStr>(env: &dyn Environment, name: &str) -> Result<Option<T>, ConfigError> {
    let parse = |text: String| text.parse().map_err(|_| wrong(name, format!("`{text}` is no whole number")));
    env.get(name).map(parse).transpose()
}

/// The locale of messages, by the order that POSIX gives.
fn locale(env: &dyn Environment) -> String {
    let set = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(|name| env.get(name));
    set.unwrap_or_default()
}

/// Days that something is kept, 1 to 36500, or `forever`.
fn kept(
    env: &dyn Environment,
    variable: &str,
    (key, kept): (&str, &Option<Days>),
    default: Option<Duration>,
) -> Result<Option<Duration>, ConfigError> {
    let (name, text) = match (env.get(variable), kept) {
        (Some(text), _) => (variable, text),
        (None, Some(Days::Number(days))) => (key, days.to_string()),
        (None, Some(Days::Text(text))) => (key, text.clone()),
        (None, None) => return Ok(default),
    };
    if text == "forever" {
        return Ok(None);
    }
    match text.parse::<u64>() {
        Ok(days @ 1..=36_500) => Ok(Some(Duration::from_secs(days * 86_400))),
        _ => Err(wrong(name, "must be days, 1 to 36500, or `forever`")),
    }
}

fn retention(env: &dyn Environment, file: &File) -> Result<Retention, ConfigError> {
    let (own, default) = (&file.retention, Retention::default());
    let of = |variable, key, days, default| kept(env, variable, (key, days), default);
    Ok(Retention {
        finished: of(
            "COOLANT_RETENTION_FINISHED_DAYS",
            "retention.finished_days",
            &own.finished_days,
            default.finished,
        )?,
        dead_letters: of(
            "COOLANT_RETENTION_DEAD_LETTER_DAYS",
            "retention.dead_letter_days",
            &own.dead_letter_days,
            default.dead_letters,
        )?,
        ledger: of(
            "COOLANT_RETENTION_LEDGER_DAYS",
            "retention.ledger_days",
            &own.ledger_days,
            default.ledger,
        )?,
    })
}

fn locks(
    url: Option<String>,
    env: &dyn Environment,
    file: &File,
) -> Result<Option<LockSettings>, ConfigError> {
    let Some(url) = url else { return Ok(None) };
    // Without what was said: it may hold a password.
    if !url.starts_with("redis://") {
        let takes = "must be `redis://HOST:PORT/DATABASE`; without it, locks are in the store";
        return Err(wrong("locks", takes));
    }
    let prefix = env.get("COOLANT_LOCKS_PREFIX").or_else(|| file.locks_prefix.clone()).unwrap_or_default();
    Ok(Some(LockSettings { url: Secret::new(url), prefix }))
}

/// Who this process is, for people: `user@host:pid`.
#[must_use]
pub fn this_process() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| Process.get(name));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let part = |text: &str, other: &str| {
        let plain: String = text.trim().chars().filter(|c| !c.is_control()).take(60).collect();
        if plain.is_empty() { other.to_owned() } else { plain }
    };
    format!(
        "{}@{}:{}",
        part(user.as_deref().unwrap_or_default(), "somebody"),
        part(&host, "localhost"),
        std::process::id()
    )
}

fn embedding(env: &dyn Environment, file: &File) -> Result<EmbeddingSettings, ConfigError> {
    let kept = &file.embedding;
    let text = |name: &str, kept: &Option<String>| env.get(name).or_else(|| kept.clone());
    let mut base_url = text("COOLANT_EMBEDDING_BASE_URL", &kept.base_url);
    let mut api_key = text("COOLANT_EMBEDDING_API_KEY", &kept.api_key);
    let mut model = text("COOLANT_EMBEDDING_MODEL", &kept.model);
    if let Some(key) = env.get("OPENAI_API_KEY")
        && base_url.as_deref().is_none_or(|url| url.starts_with(OPENAI.0))
    {
        base_url = Some(OPENAI.0.into());
        api_key = api_key.or(Some(key));
        model = model.or_else(|| Some(OPENAI.1.into()));
    }
    if base_url.is_some() && model.is_none() {
        return Err(wrong(
            "COOLANT_EMBEDDING_MODEL",
            "name the model that the embedding endpoint should use",
        ));
    }
    Ok(EmbeddingSettings {
        base_url,
        api_key: api_key.map(Secret::new),
        model,
        dimensions: number(env, "COOLANT_EMBEDDING_DIMENSIONS")?.or(kept.dimensions),
        batch_items: number(env, "COOLANT_EMBEDDING_BATCH_ITEMS")?.or(kept.batch_items),
        ..EmbeddingSettings::default()
    })
}

/// List prices, and before them those that the file states.
fn prices(file: &File) -> Result<Prices, ConfigError> {
    Prices::with_own(file.prices.iter().map(|(name, text)| (name.as_str(), text)))
        .map_err(|error| wrong(&format!("prices.\"{}\"", error.name), error.reason))
}

fn parser(env: &dyn Environment, file: &File) -> Result<Limits, ConfigError> {
    let defaults = Limits::default();
    let seconds = number(env, "COOLANT_PARSER_SECONDS")?.or(file.parser.seconds);
    let memory_mib = number(env, "COOLANT_PARSER_MEMORY_MIB")?.or(file.parser.memory_mib);
    Ok(Limits {
        time: seconds.map_or(defaults.time, |seconds: u64| Duration::from_secs(seconds.clamp(1, 3600))),
        memory_bytes: memory_mib.map_or(defaults.memory_bytes, |mib: u64| mib.clamp(64, 1 << 16) << 20),
        ..defaults
    })
}

impl File {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        toml::from_str(&text)
            .map_err(|source| ConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    impl Environment for HashMap<&str, &str> {
        fn get(&self, name: &str) -> Option<String> {
            HashMap::get(self, name).map(|value| (*value).to_owned())
        }
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coolant.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn what_is_over_is_kept_as_long_as_it_is_said() {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        let load = |text: &str, env: &HashMap<&str, &str>| {
            let (_folder, path) = written(text);
            let flags = Flags { config: Some(path), ..Flags::default() };
            Settings::load(&flags, env).map(|settings| settings.retention)
        };
        let nothing = HashMap::new();
        assert_eq!(
            load("", &nothing).unwrap(),
            Retention { finished: days(30), dead_letters: None, ledger: None }
        );
        let text = "[retention]\nfinished_days = 'forever'\ndead_letter_days = 90\nledger_days = 400";
        let said = Retention { finished: None, dead_letters: days(90), ledger: days(400) };
        assert_eq!(load(text, &nothing).unwrap(), said);
        let env = HashMap::from([("COOLANT_RETENTION_FINISHED_DAYS", "7")]);
        assert_eq!(load(text, &env).unwrap(), Retention { finished: days(7), ..said });
        for wrong in ["finished_days = 0", "dead_letter_days = 'soon'", "ledger_days = 36501", "days = 3"] {
            let error = load(&format!("[retention]\n{wrong}"), &nothing).unwrap_err();
            let name = wrong.split(' ').next().unwrap();
            assert!(format!("{error:?}").contains(name), "{error:?}");
        }
    }

    #[test]
    fn flags_beat_the_environment_and_that_beats_the_file() {
        let (_folder, path) = written("listen = '127.0.0.1:1'\nstore = 'sqlite:file.db'\nconcurrency = 7");
        let env = HashMap::from([("COOLANT_LISTEN", "127.0.0.1:2"), ("COOLANT_STORE", "sqlite:env.db")]);
        let flags = Flags { store: Some("sqlite:flag.db".into()), config: Some(path), ..Flags::default() };
        let settings = Settings::load(&flags, &env).unwrap();
        assert_eq!(settings.store, Address::Sqlite("flag.db".into()));
        assert_eq!(settings.listen.port(), 2);
        assert_eq!(settings.concurrency, 7);
    }

    #[test]
    fn an_unknown_key_in_the_file_is_an_error_that_names_it() {
        let (_folder, path) = written("[embedding]\nbase_ulr = 'http://x'");
        let flags = Flags { config: Some(path), ..Flags::default() };
        let error = Settings::load(&flags, &HashMap::new()).unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("base_ulr"));
    }

    #[test]
    fn a_price_of_the_file_goes_before_the_list_and_a_wrong_one_is_named() {
        let load = |text: &str| {
            let (_folder, path) = written(text);
            Settings::load(&Flags { config: Some(path), ..Flags::default() }, &HashMap::new())
        };
        let settings = load("[prices.'openai/gpt-4.1']\ninput = 0.3\noutput = '7'").unwrap();
        let cost = settings.prices.estimate("openai/gpt-4.1", 10, 1, Default::default()).unwrap();
        assert_eq!(cost.as_nanos(), 10 * 300 + 7000);
        let error = load("[prices.'openai/gpt-4.1']\ninput = -1").unwrap_err().to_string();
        assert!(error.contains("openai/gpt-4.1"), "{error}");
        load("[prices.'openai/gpt-4.1']\ninputs = 1").unwrap_err();
    }

    #[test]
    fn an_openai_key_alone_is_enough_and_is_never_shown() {
        let env = HashMap::from([("OPENAI_API_KEY", "sk-secret")]);
        let settings = Settings::load(&Flags::default(), &env).unwrap();
        assert_eq!(settings.embedding.base_url.as_deref(), Some(OPENAI.0));
        assert_eq!(settings.embedding.model.as_deref(), Some(OPENAI.1));
        assert!(!format!("{settings:?}").contains("sk-secret"));
    }

    #[test]
    fn somebody_elses_endpoint_does_not_get_the_openai_key() {
        let env = HashMap::from([
            ("OPENAI_API_KEY", "sk-secret"),
            ("COOLANT_EMBEDDING_BASE_URL", "http://127.0.0.1:9/v1"),
            ("COOLANT_EMBEDDING_MODEL", "m"),
        ]);
        assert!(Settings::load(&Flags::default(), &env).unwrap().embedding.api_key.is_none());
    }
}
