//! Fetches a program from upstream's release files and checks it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Download;
use crate::cache::file_digest;

/// No release file is larger: a runaway server does not fill the disk.
const LIMIT: u64 = 2 << 30;

/// Fetches into `place`, through `temporary`, a path that is not there yet.
///
/// # Errors
/// When the server cannot be reached or refuses, the digest differs, or the archive lacks the program.
pub fn fetch(download: &Download, temporary: &Path, place: &Path) -> Result<()> {
    fetch_file(&download.url, temporary).with_context(|| format!("fetching {}", download.url))?;
    let digest = file_digest(temporary)?;
    if digest != download.sha256 {
        bail!("{} has SHA-256 {digest}, not {}", download.url, download.sha256);
    }
    match &download.member {
        None => fs::copy(temporary, place).map(drop).with_context(|| format!("copying to {}", place.display()))?,
        Some(member) => {
            let mut output = File::create(place).with_context(|| format!("writing {}", place.display()))?;
            unpack(temporary, member, &mut output).with_context(|| format!("unpacking {}", download.url))?;
        }
    }
    fs::remove_file(temporary).context("removing a release file after use")
}

fn fetch_file(url: &str, place: &Path) -> Result<()> {
    let client = reqwest::blocking::Client::builder().timeout(None).connect_timeout(Duration::from_secs(30)).build()?;
    let response = client.get(url).send()?.error_for_status()?;
    let mut file = File::create(place)?;
    if io::copy(&mut response.take(LIMIT), &mut file)? == LIMIT {
        bail!("the file is larger than {LIMIT} bytes");
    }
    Ok(())
}

fn unpack(archive: &Path, member: &str, output: &mut File) -> Result<()> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?;
        if path.strip_prefix(".").unwrap_or(&path) == Path::new(member) {
            io::copy(&mut entry, output)?;
            return Ok(());
        }
    }
    bail!("the archive has no {member}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::hex;
    use crate::component::Program;
    use sha2::{Digest, Sha256};
    use std::io::Write;
    use std::net::TcpListener;

    /// A server on loopback that answers one request with these bytes.
    fn serve(status: &'static str, body: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
        });
        format!("http://{address}/release")
    }

    fn fetch_from(url: String, sha256: String, member: Option<&str>) -> Result<Vec<u8>> {
        let directory = tempfile::tempdir()?;
        let program = Program { output: "p".to_owned(), names: Vec::new() };
        let download = Download { url, sha256, member: member.map(str::to_owned), program };
        let place = directory.path().join("p");
        fetch(&download, &directory.path().join("t"), &place)?;
        Ok(fs::read(place)?)
    }

    fn digest(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    #[test]
    fn a_plain_program_is_fetched_and_checked() {
        let body = b"program".to_vec();
        let got = fetch_from(serve("200 OK", body.clone()), digest(&body), None).unwrap();
        assert_eq!(got, body);
        let error = fetch_from(serve("200 OK", body), digest(b"other"), None).unwrap_err().to_string();
        assert!(error.contains("has SHA-256"), "{error}");
    }

    #[test]
    fn a_program_is_taken_out_of_an_archive() {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(7);
        header.set_mode(0o755);
        archive.append_data(&mut header, "./bin/program", &b"program"[..]).unwrap();
        let body = archive.into_inner().unwrap().finish().unwrap();
        let sha256 = digest(&body);
        let got = fetch_from(serve("200 OK", body.clone()), sha256.clone(), Some("bin/program")).unwrap();
        assert_eq!(got, b"program");
        let error = fetch_from(serve("200 OK", body), sha256, Some("bin/other")).unwrap_err();
        assert!(format!("{error:#}").ends_with("the archive has no bin/other"), "{error:#}");
    }

    #[test]
    fn a_refusal_of_the_server_is_an_error() {
        let error = fetch_from(serve("404 Not Found", Vec::new()), digest(b""), None).unwrap_err();
        assert!(format!("{error:#}").contains("404"), "{error:#}");
    }
}
