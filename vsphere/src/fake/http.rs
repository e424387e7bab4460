//! The part of HTTP/1.1 that the client uses: a request with its body, an answer, and the next request.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::{Asked, Fake, Reply};

pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, fake: &Fake) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream).await {
        let method = asked.method.clone();
        let mut reply = fake.reply(asked);
        while let Reply::When(notify, then) = reply {
            notify.notified().await;
            reply = *then;
        }
        let (status, cookie, body) = match reply {
            Reply::Response(body) => {
                let cookie = if method == "Login" {
                    format!("set-cookie: vmware_soap_session=\"s{}\"; Path=/; HttpOnly\r\n", fake.count("Login"))
                } else {
                    String::new()
                };
                (200, cookie, envelope(&format!("<{method}Response xmlns=\"urn:vim25\">{body}</{method}Response>")))
            }
            Reply::Fault(kind, fields) => (500, String::new(), envelope(&super::fault(kind, &fields))),
            Reply::Status(status, body) => (status, String::new(), body),
            Reply::Cut => return,
            Reply::When(..) => unreachable!("it was waited for"),
        };
        let head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n{cookie}\r\n", body.len());
        if stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.is_err() {
            return;
        }
    }
}

fn envelope(body: &str) -> String {
    format!(
        r#"<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><s:Body>{body}</s:Body></s:Envelope>"#
    )
}

async fn read(stream: &mut BufReader<impl AsyncRead + AsyncWrite + Unpin>) -> Option<Asked> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = head.lines().next()?.to_owned();
    let lower = head.to_lowercase();
    let length =
        lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    let mut read = 0;
    while read < length {
        match stream.read(&mut body[read..]).await {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    let is_whole = read == length;
    body.truncate(read);
    let text = String::from_utf8_lossy(&body);
    let method = match text.split_once("<soapenv:Body><") {
        Some((_, call)) => call.split([' ', '>']).next()?.to_owned(),
        None => line.rsplit_once(' ')?.0.to_owned(),
    };
    // For an upload that was cut off, a test sees the part that arrived.
    let method = if is_whole { method } else { format!("{method} cut off") };
    Some(Asked { method, head: lower, body })
}
