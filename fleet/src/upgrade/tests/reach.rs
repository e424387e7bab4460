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
