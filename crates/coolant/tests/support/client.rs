//! A small HTTP client over a plain socket: it sends what it is told, however wrong, and waits for nothing
//! it was not asked to wait for.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest that a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(70);

/// Talks to one server.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Where it listens.
    pub address: SocketAddr,
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers besides `Host`, `Connection` and `Content-Length`.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Call {
    /// A call without headers and body.
    pub fn new(method: &str, path: impl Into<String>) -> Self {
        Self { method: method.into(), path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// With a header.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// With a body of any kind.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// With a body that says it is JSON.
    pub fn json_text(self, text: impl Into<Vec<u8>>) -> Self {
        self.header("Content-Type", "application/json").body(text)
    }

    /// With a JSON body.
    pub fn json(self, body: &Value) -> Self {
        self.json_text(body.to_string())
    }

    /// The call as bytes.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        let has = |name: &str| self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let mut bytes =
            format!("{} {} HTTP/1.1\r\nConnection: close\r\n", self.method, self.path).into_bytes();
        if !has("Host") {
            bytes.extend(format!("Host: {host}\r\n").into_bytes());
        }
        if !self.body.is_empty() && !has("Content-Length") && !has("Transfer-Encoding") {
            bytes.extend(format!("Content-Length: {}\r\n", self.body.len()).into_bytes());
        }
        for (name, value) in &self.headers {
            bytes.extend(name.as_bytes());
            bytes.extend(b": ");
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Its body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Its body as JSON, of an answer that must have that status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }
}

impl Client {
    /// Makes a call.
    pub async fn send(&self, call: Call) -> Answer {
        self.raw(&call.bytes(&self.address.to_string())).await
    }

    /// Sends bytes, reads to the end.
    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.open(bytes).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        // A server that refuses early may close before all is written; what it said still counts.
        let _ = tokio::time::timeout(PATIENCE, read).await.expect("an answer in time");
        parse(&answer)
    }

    /// Sends bytes and leaves the connection open.
    pub async fn open(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("the server listens");
        let _ = stream.write_all(bytes).await;
        stream
    }

    /// GET.
    pub async fn get(&self, path: impl Into<String>) -> Answer {
        self.send(Call::new("GET", path)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: impl Into<String>) -> Answer {
        self.send(Call::new("DELETE", path)).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: impl Into<String>, body: Value) -> Answer {
        self.send(Call::new("POST", path).json(&body)).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: impl Into<String>, body: Value) -> Answer {
        self.send(Call::new("PUT", path).json(&body)).await
    }
}

/// Reads an answer; status 0 if there is none.
pub fn parse(bytes: &[u8]) -> Answer {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Answer { status: 0, headers: Vec::new(), body: bytes.to_vec() };
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = &bytes[end + 4..];
    let body = if chunked { unchunked(body) } else { body.to_vec() };
    Answer { status: status.unwrap_or(0), headers, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let size =
            std::str::from_utf8(&rest[..line]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let Some(size) = size.filter(|size| *size > 0 && rest.len() >= line + 2 + size) else { break };
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = rest.get(line + 4 + size..).unwrap_or_default();
    }
    body
}
