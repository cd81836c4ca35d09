//! An OpenAI-compatible embedding server that counts what has to be paid and does as it is told.
//!
//! An input is paid once its request was read to the end and is not refused, whether or not anybody gets
//! the answer: that is how providers bill.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Numbers of a vector.
const DIMENSION: usize = 24;

/// The server; it listens as long as the test's process lives.
#[derive(Clone)]
pub struct Provider {
    pub address: SocketAddr,
    desk: Arc<Desk>,
}

/// What a call gets.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Its vectors.
    Good,
    /// A refusal: nothing to pay. Status, headers, body.
    Refuse(u16, Vec<(&'static str, String)>, String),
    /// Half of the vectors' JSON, then the connection ends.
    Cut,
    /// One vector too few.
    TooFew,
}

#[derive(Default)]
struct Desk {
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Default)]
struct Book {
    /// Every input that is paid, in the order of the calls.
    paid: Vec<String>,
    /// Calls that are paid.
    calls: usize,
    refused: usize,
    /// The keys that came.
    keys: HashSet<String>,
    /// For the next calls; then `standing`.
    plan: VecDeque<Reply>,
    standing: Option<Reply>,
    /// Calls of more inputs are refused as too large.
    most_items: Option<usize>,
    /// No answer goes out once so many inputs are paid.
    hold_from: Option<usize>,
    /// Connections that hold their answer back.
    held: usize,
    /// The most that there were at a time.
    most_held: usize,
    /// How long an answer takes.
    takes: Duration,
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let desk = Arc::new(Desk::default());
        let at_desk = Arc::clone(&desk);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = Arc::clone(&at_desk);
                std::thread::spawn(move || {
                    let _ = desk.serve(&stream);
                });
            }
        });
        Self { address, desk }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Inputs paid so far.
    pub fn paid(&self) -> usize {
        self.book().paid.len()
    }

    /// The inputs paid from the given one on.
    pub fn paid_since(&self, since: usize) -> Vec<String> {
        self.book().paid[since..].to_vec()
    }

    /// Different inputs paid so far.
    pub fn distinct(&self) -> usize {
        self.book().paid.iter().collect::<HashSet<_>>().len()
    }

    pub fn calls(&self) -> usize {
        self.book().calls
    }

    /// The most calls that were under way at a time.
    pub fn most_at_once(&self) -> usize {
        self.book().most_held
    }

    pub fn refused(&self) -> usize {
        self.book().refused
    }

    pub fn keys(&self) -> HashSet<String> {
        self.book().keys.clone()
    }

    /// What the next calls get, one each.
    pub fn plan(&self, replies: impl IntoIterator<Item = Reply>) {
        self.book().plan.extend(replies);
    }

    /// What every call without a plan gets from now on.
    pub fn always(&self, reply: Reply) {
        self.book().standing = Some(reply);
    }

    /// Refuses calls of more inputs.
    pub fn take_at_most(&self, items: usize) {
        self.book().most_items = Some(items);
    }

    /// Answers no call that brings the paid inputs to so many, until [`Self::release`].
    pub fn hold_from(&self, paid: usize) {
        self.book().hold_from = Some(paid);
    }

    /// Makes every call take so long.
    pub fn takes(&self, span: Duration) {
        self.book().takes = span;
    }

    /// Lets everything go that is held back.
    pub fn release(&self) {
        self.book().hold_from = None;
        self.desk.changed.notify_all();
    }

    /// Ends when so many inputs are paid; `false` if `stop` says so first.
    pub fn wait_paid(&self, paid: usize, mut stop: impl FnMut() -> bool) -> bool {
        self.wait("paid inputs", |book| book.paid.len() >= paid, &mut stop)
    }

    /// Ends when an answer is held back.
    pub fn wait_held(&self) {
        self.wait("a call to hold", |book| book.held > 0, &mut || false);
    }

    /// Ends when so many calls were refused.
    pub fn wait_refused(&self, calls: usize) {
        self.wait("refused calls", |book| book.refused >= calls, &mut || false);
    }

    fn wait(&self, what: &str, done: impl Fn(&Book) -> bool, stop: &mut impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut book = self.book();
        while !done(&book) {
            if stop() {
                return false;
            }
            assert!(Instant::now() < deadline, "no {what} for two minutes");
            // Woken by each call; the limit is for `stop` and the deadline alone.
            book = self.desk.changed.wait_timeout(book, Duration::from_millis(20)).unwrap().0;
        }
        true
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.desk.book.lock().unwrap()
    }
}

impl Desk {
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some((key, inputs)) = read_call(&mut reader)? {
            let reply = self.receive(key, &inputs);
            if !answer(stream, &reply, &inputs)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Books a call that was read to the end; returns when it may be answered.
    fn receive(&self, key: Option<String>, inputs: &[String]) -> Reply {
        let mut book = self.book.lock().unwrap();
        book.keys.extend(key);
        let too_large = book.most_items.is_some_and(|most| inputs.len() > most);
        let reply = if too_large {
            let message = format!("array too long: at most {} inputs", book.most_items.unwrap());
            Reply::Refuse(400, Vec::new(), json!({"error": {"message": message}}).to_string())
        } else {
            let standing = book.standing.clone();
            book.plan.pop_front().or(standing).unwrap_or(Reply::Good)
        };
        if matches!(reply, Reply::Refuse(..)) {
            book.refused += 1;
        } else {
            book.paid.extend(inputs.iter().cloned());
            book.calls += 1;
        }
        book.held += 1;
        book.most_held = book.most_held.max(book.held);
        self.changed.notify_all();
        while book.hold_from.is_some_and(|hold| book.paid.len() >= hold) {
            book = self.changed.wait(book).unwrap();
        }
        let takes = book.takes;
        drop(book);
        std::thread::sleep(takes);
        self.book.lock().unwrap().held -= 1;
        reply
    }
}

/// A call's key and inputs; `None` if the other side has gone, also in the middle of one.
fn read_call(reader: &mut impl BufRead) -> std::io::Result<Option<(Option<String>, Vec<String>)>> {
    let (mut length, mut key) = (0, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "authorization" => key = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return Ok(None);
    }
    let body: Value = serde_json::from_slice(&body).unwrap();
    let inputs = body["input"].as_array().unwrap();
    Ok(Some((key, inputs.iter().map(|input| input.as_str().unwrap().to_owned()).collect())))
}

/// Says whether the connection goes on.
fn answer(mut stream: &TcpStream, reply: &Reply, inputs: &[String]) -> std::io::Result<bool> {
    let (status, headers, body) = match reply {
        Reply::Refuse(status, headers, body) => (*status, headers.clone(), body.clone()),
        Reply::TooFew => (200, Vec::new(), vectors(&inputs[1..])),
        Reply::Good | Reply::Cut => (200, Vec::new(), vectors(inputs)),
    };
    let mut head = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if matches!(reply, Reply::Cut) {
        stream.write_all(&body.as_bytes()[..body.len() / 2])?;
        stream.shutdown(std::net::Shutdown::Both)?;
        return Ok(false);
    }
    stream.write_all(body.as_bytes())?;
    Ok(true)
}

fn vectors(inputs: &[String]) -> String {
    let data = inputs.iter().enumerate();
    let data: Vec<Value> =
        data.map(|(index, text)| json!({"index": index, "embedding": vector(text)})).collect();
    let tokens: usize = inputs.iter().map(|input| input.split_whitespace().count()).sum();
    json!({"object": "list", "model": "fake-1", "data": data, "usage": {"prompt_tokens": tokens}}).to_string()
}

/// Counts words by what they are: texts with the same words are near each other, on every run.
fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.01_f32; DIMENSION];
    for word in text.split_whitespace() {
        vector[usize::from(blake3::hash(word.as_bytes()).as_bytes()[0]) % DIMENSION] += 1.0;
    }
    vector
}

/// A refusal as providers write it.
pub fn refusal(status: u16, message: &str) -> Reply {
    Reply::Refuse(status, Vec::new(), json!({"error": {"message": message}}).to_string())
}
