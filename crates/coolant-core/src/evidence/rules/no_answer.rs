//! Calls without an HTTP answer: what the libraries of several languages say about a broken connection.
//!
//! The order is: what never heals, what was provably not sent, what may have been.

use crate::failure::CoolingScope::Upstream;
use crate::failure::FailureClass::{InvalidRequest, Network, Timeout};

use crate::evidence::Retry::{Conditional, No, Yes};
use crate::evidence::matching::Rule;

/// Calls without an HTTP answer: the client library's own words.
pub(in crate::evidence) const NO_ANSWER: &[Rule] = &[
    Rule::new("tls_trust", Network, No, Upstream).says(
        "certificate verify failed | self signed certificate | unable to get issuer | \
         unable to get local issuer | unknownissuer | unknown issuer | invalid peer certificate | \
         certificate has expired | cert has expired | certificate is not valid | certificate is not trusted | \
         cert authority invalid | cert common name invalid | cert date invalid | \
         unable to verify leaf signature | unable to verify the first certificate | \
         depth zero self signed | x509: | pkix path | cert altname invalid | \
         hostname mismatch | doesn't match certificate | notvalidforname | unknown ca | caused by sslcert | \
         certificate unknown | untrusted root | invalidcertificate | sslcertverificationerror",
    ),
    Rule::new("bad_address", InvalidRequest, No, Upstream).says(
        "relative url without a base | invalid url | no scheme supplied | unsupported protocol | \
         missing schema | url scheme is not allowed | builder error | empty host | invalid uri",
    ),
    Rule::new("not_processed", Network, Yes, Upstream).says(
        "refused stream | goaway | go away | connection closed before message completed",
    ),
    Rule::new("connect_timeout", Timeout, Yes, Upstream).says(
        "connect timeout | connecttimeout | connection timed out | connection timeout | connect timed out | \
         timed out * connect | timeout * connecting | connect * timed out | dial tcp * i/o timeout | \
         tls handshake timeout | pooltimeout | pool timeout | und err connect timeout",
    ),
    Rule::new("dns_for_now", Network, Yes, Upstream).says(
        "eai again | temporary failure in name resolution | try again * name resolution | servfail",
    ),
    Rule::new("dns", Network, Conditional, Upstream).says(
        "dns error | enotfound | getaddrinfo | name or service not known | nodename nor servname | \
         no such host | name resolution | nameresolutionerror | failed to lookup address | failed to resolve | \
         could not resolve host | no address associated | nxdomain",
    ),
    Rule::new("refused", Network, Yes, Upstream).says(
        "econnrefused | connection refused | actively refused | refused the network connection | ehostunreach | \
         enetunreach | network is unreachable | no route to host | host is unreachable | \
         cannot connect to host | enetdown",
    ),
    Rule::new("tls_handshake", Network, Conditional, Upstream).says(
        "wrong version number | handshake failure | handshake failed | tls alert | sslv3 alert | tlsv1 alert | \
         received corrupt message | eproto | invalidcontenttype | unsupported protocol version | \
         tunnel connection failed | proxyerror | proxy error | proxy connect",
    ),
    Rule::new("cut", Network, Yes, Upstream).says(
        "econnreset | connection reset | reset by peer | forcibly closed | broken pipe | epipe | socket hang up | \
         server disconnected | remoteprotocolerror | remotedisconnected | connection aborted | econnaborted | \
         incomplete chunked read | incompleteread | incomplete read | premature close | prematurely | \
         incomplete message | unexpected eof | unexpected end of file | und err socket | other side closed | \
         peer closed connection | connection closed | closed connection | connection was closed | \
         error decoding response body | error reading a body | body error | stream error | stream closed | stream was reset | \
         rst stream | chunkedencodingerror | protocolerror | connection lost | connection error | \
         connectionerror | fetch failed | network error | networkerror | readerror | writeerror | \
         failed to fetch | terminated | content length mismatch | transfer closed | \
         unexpected end of json input | error sending request | eof occurred in violation",
    )
    .unless_says("timed out | timeout"),
    Rule::new("no_answer_in_time", Timeout, Conditional, Upstream).says(
        "timed out | timeout | timedout | etimedout | deadline | aborterror | operation was aborted | \
         readtimeout | writetimeout | took too long | time out | request aborted | was cancelled | canceled",
    ),
    // Timers named inside a longer word (`APITimeoutError`, `UND_ERR_HEADERS_TIMEOUT`).
    Rule::new("no_answer_in_time", Timeout, Conditional, Upstream)
        .codes("APITimeoutError ReadTimeoutError TimeoutError AbortError ReadTimeoutException HeadersTimeoutError \
             BodyTimeoutError TimeoutException"),
    Rule::new("cut", Network, Yes, Upstream)
        .codes("APIConnectionError ConnectionError ConnectionResetError ClientConnectorError ClientOSError \
             ServerDisconnectedError BrokenPipeError ClientPayloadError ReadError RemoteProtocolError"),
];
