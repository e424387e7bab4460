use super::*;

#[test]
fn errors_of_http_and_tls_are_answers_and_a_broken_connection_is_none() {
    let answered = Answered { status: 503, words: "not now".into() };
    assert_eq!(Says::of(&anyhow::Error::from(answered).context("asking cp1")), Says::SomethingElse);
    let tls = io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate");
    assert_eq!(Says::of(&anyhow::Error::from(tls).context("asking cp1")), Says::SomethingElse);
    let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
    assert_eq!(Says::of(&anyhow::Error::from(refused)), Says::Nothing);
    assert_eq!(Says::of(&anyhow::anyhow!("no answer")), Says::Nothing);
}

/// What the client says when something answers that its TLS does not accept, and when nothing does.
#[tokio::test]
async fn what_speaks_no_tls_that_is_trusted_has_answered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ask = async || {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        anyhow::Error::from(client.get(format!("https://{address}")).send().await.unwrap_err())
    };
    let answers = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = ask().await;
    assert_eq!(Says::of(&error), Says::SomethingElse, "{error:?}");
    answers.join().unwrap();
    let error = ask().await;
    assert_eq!(Says::of(&error), Says::Nothing, "{error:?}");
}
