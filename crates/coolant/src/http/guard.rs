//! Guard: what is refused before any handler sees it: foreign names and origins, broken URLs.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::HttpConfig;
use super::problem::{Code, Problem};

/// Most header lines of a request.
const MAX_HEADERS: usize = 100;

/// In front of every call.
pub(crate) async fn guard(State(config): State<Arc<HttpConfig>>, request: Request, next: Next) -> Response {
    match check(&config, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(config: &HttpConfig, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if headers.len() > MAX_HEADERS {
        let detail = format!("a request takes at most {MAX_HEADERS} headers");
        return Err(Problem::new(Code::TooManyHeaders, detail));
    }
    check_host(config, uri, headers)?;
    check_origin(config, headers)?;
    let path_and_query = uri.path_and_query().map_or("", |both| both.as_str());
    if !is_percent_encoded_utf8(path_and_query) {
        return Err(Problem::new(Code::InvalidUrl, "the URL holds a broken percent-encoding, or no UTF-8"));
    }
    Ok(())
}

/// A page that had its own name resolved to this machine (DNS rebinding) still says its own name.
fn check_host(config: &HttpConfig, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if config.allowed_hosts.is_empty() {
        return Ok(());
    }
    let foreign =
        || Problem::new(Code::ForeignHost, "this server is not called by that name").of_field("Host");
    let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
    for host in named.chain(uri.host().map(Some)) {
        let name = host.map(without_port).ok_or_else(foreign)?;
        if !config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
            return Err(foreign());
        }
    }
    Ok(())
}

/// A page of another origin may not act here, not even one on another port of this machine.
fn check_origin(config: &HttpConfig, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).is_some_and(
        |(scheme, authority)| {
            matches!(scheme, "http" | "https")
                && host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
        },
    );
    if own || config.allowed_hosts.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::ForeignOrigin, "pages of another origin may not call this server")
        .of_field("Origin"))
}

/// The name in `name:port`, `[::1]:port` or `name`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

/// Whether every `%` is followed by two hex digits, and the decoded text is UTF-8 without NUL.
fn is_percent_encoded_utf8(text: &str) -> bool {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (hex(bytes.next()), hex(bytes.next())) else { return false };
        #[expect(clippy::cast_possible_truncation, reason = "two hex digits make a byte")]
        decoded.push((high * 16 + low) as u8);
    }
    !decoded.contains(&0) && std::str::from_utf8(&decoded).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_with_and_without_its_port() {
        assert_eq!(without_port("localhost:7070"), "localhost");
        assert_eq!(without_port("localhost"), "localhost");
        assert_eq!(without_port("[::1]:7070"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
        assert_eq!(without_port("evil.example:7070"), "evil.example");
    }

    #[test]
    fn a_broken_percent_encoding_is_seen() {
        for good in ["/", "/documents/%EB%AC%B8%EC%84%9C?q=%20", "/a%2Fb"] {
            assert!(is_percent_encoded_utf8(good), "{good}");
        }
        for bad in ["/%", "/%4", "/%zz", "/%ff", "/%00", "/?q=%E0%80"] {
            assert!(!is_percent_encoded_utf8(bad), "{bad}");
        }
    }
}
