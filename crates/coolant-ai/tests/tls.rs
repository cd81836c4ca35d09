//! TLS: whom the HTTP embedder trusts.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::process::Command;
use std::sync::Arc;

use coolant_ai::embed::{
    EmbedError, EmbeddingSettings, Embeddings, Phase, TransportFault, build, install_tls_provider,
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const BODY: &str = r#"{"data": [{"index": 0, "embedding": [1, 2, 3]}]}"#;
const BASE_URL: &str = "COOLANT_TEST_TLS_BASE_URL";

/// A server with a certificate that only its own PEM vouches for; gives base URL and PEM.
async fn tls_server() -> (String, String) {
    install_tls_provider();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".into()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (base_url, cert.pem())
}

async fn embed(base_url: String) -> Result<Embeddings, EmbedError> {
    let model = Some("m".to_owned());
    let settings = EmbeddingSettings { base_url: Some(base_url), model, ..Default::default() };
    build(&settings).unwrap().embed(&["text".to_owned()]).await
}

#[tokio::test]
async fn an_unknown_certificate_is_not_trusted_and_nothing_is_sent() {
    let (base_url, _) = tls_server().await;
    let error = embed(base_url).await.unwrap_err();
    let EmbedError::Transport { phase, fault, evidence } = error else { panic!("{error:?}") };
    assert_eq!((phase, fault), (Phase::NotSent, TransportFault::UntrustedTls));
    assert!(evidence.body.as_str().unwrap().contains("certificate"), "{}", evidence.body);
}

/// The system's certificates are read once a process, so the trusting client is another process, and
/// the system's file is that of this test.
#[tokio::test(flavor = "multi_thread")]
async fn the_systems_certificates_are_trusted() {
    let (base_url, pem) = tls_server().await;
    let file = std::env::temp_dir().join(format!("coolant-ai-roots-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_trusts_the_system", "--ignored", "--nocapture"])
        .env("SSL_CERT_FILE", &file)
        .env_remove("SSL_CERT_DIR")
        .env(BASE_URL, base_url)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[tokio::test]
#[ignore = "run by the test above, as a process of its own"]
async fn child_that_trusts_the_system() {
    // Also run by hand with all ignored tests, and then there is no server.
    if let Ok(base_url) = std::env::var(BASE_URL) {
        assert_eq!(embed(base_url).await.unwrap().vectors, [[1.0, 2.0, 3.0]]);
    }
}
