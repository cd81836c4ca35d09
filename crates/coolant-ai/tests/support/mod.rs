//! A server on the loopback that sends bytes as told, right or wrong.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the server does after it has read a request. After the last step it closes the connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends them again and again until the client goes away.
    Forever(Vec<u8>),
    /// Says nothing until the client goes away.
    Hold,
}

/// One request as it came.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// The server; its end is the end of the test's runtime, or [`Server::stop`].
pub(crate) struct Server {
    pub(crate) base_url: String,
    requests: Arc<Mutex<Vec<Request>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Every connection gets the same steps.
    pub(crate) async fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, steps) = (Arc::clone(&seen), steps.clone());
                tokio::spawn(async move {
                    if let Some(request) = read_request(&mut stream).await {
                        seen.lock().unwrap().push(request);
                        play(&mut stream, steps).await;
                    }
                });
            }
        });
        Self { base_url, requests, task }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Frees the port.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// An answer with a body and its length.
pub(crate) fn http(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        answer.push_str(header);
        answer.push_str("\r\n");
    }
    answer.push_str("\r\n");
    [answer.as_bytes(), body].concat()
}

async fn read_request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end + 4]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(Request { head, body: bytes[end + 4..].to_vec() });
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn play(stream: &mut TcpStream, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                let _ = stream.write_all(&bytes).await;
            }
            Step::Forever(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Step::Hold => {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    }
}
