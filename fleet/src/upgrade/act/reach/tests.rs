use super::*;
use crate::nodes::tests::said;
use crate::nodes::{Answer, LARGEST};
use crate::upgrade::nodes::{facts_of, is_name};

#[test]
fn http_and_tls_errors_count_as_answers() {
    let answered = Answered::with("the node answered 503 Service Unavailable: not now");
    assert_eq!(Says::of(&anyhow::Error::from(answered).context("asking cp1")), Says::SomethingElse);
    let tls = io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate");
    assert_eq!(Says::of(&anyhow::Error::from(tls).context("asking cp1")), Says::SomethingElse);
    let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
    assert_eq!(Says::of(&anyhow::Error::from(refused)), Says::Nothing);
    assert_eq!(Says::of(&anyhow::anyhow!("no answer")), Says::Nothing);
}

/// The client's error if the peer's TLS is not accepted, and if there is no peer.
#[tokio::test]
async fn untrusted_tls_peer_counts_as_an_answer() {
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

/// An answer that is cut short, too long, or not understood is still an answer.
#[test]
fn an_answer_that_is_no_good_is_one() {
    let length = LARGEST + 1;
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
    for what in [
        // The connection is closed, before the answer and within it.
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        "what?\r\n",
        &long,
    ] {
        let error = said(what.as_bytes()).map(|answer| answer.status).unwrap_err();
        assert_eq!(Says::of(&error), Says::SomethingElse, "{error:?}");
    }
    for (status, body) in [(404, ""), (500, "not now"), (200, r#"{"node":"CP 1"}"#)] {
        let error = facts_of(&Answer::of(status, body.as_bytes().to_vec())).unwrap_err();
        assert_eq!(Says::of(&error), Says::SomethingElse, "{error:?}");
    }
    let error = is_name("CP 1").unwrap_err();
    assert_eq!(Says::of(&error), Says::SomethingElse, "{error:?}");
}
