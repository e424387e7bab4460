//! `kaas backup`: pulls a fresh snapshot of a cluster's store from one of its
//! control nodes, over TLS, with the administrator's kubeconfig.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use reqwest::{Certificate, Client, Identity, Response, StatusCode};
use sha2::{Digest, Sha256};

/// The port of a node's endpoint.
const PORT: u16 = 9441;
/// How long reaching the node may take, and how long it may say nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// The pause between two questions while the node takes the snapshot.
const PACE: Duration = Duration::from_secs(1);

/// What to pull from where.
#[derive(Args)]
pub struct Backup {
    /// Address of a control node; not the virtual address, behind which the node may change.
    #[arg(long, value_name = "ADDRESS")]
    node: Ipv4Addr,
    /// The endpoint's port.
    #[arg(long, default_value_t = PORT, hide = true)]
    port: u16,
    /// The cluster administrator's kubeconfig: its certificate is shown, its authority trusted.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Where to put the snapshot. It holds the cluster's secrets.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// How long the node may take for the snapshot, in minutes.
    #[arg(long, default_value_t = 10)]
    limit: u64,
}

/// Pulls the snapshot. The output is there whole and verified, or not at all.
///
/// # Errors
/// The node cannot be reached or trusted, refuses, or what came is not what it sent.
pub fn run(arguments: &Backup) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let size =
        runtime.block_on(pull(arguments)).with_context(|| format!("pulling a snapshot from {}", arguments.node))?;
    println!("{}: {size} bytes, SHA-256 verified", arguments.output.display());
    Ok(())
}

async fn pull(arguments: &Backup) -> anyhow::Result<u64> {
    let client = client(&arguments.kubeconfig)?;
    let address = format!("https://{}:{}/v1/snapshot", arguments.node, arguments.port);
    let until = Instant::now() + Duration::from_secs(arguments.limit * 60);
    loop {
        let answer = client.get(&address).send().await?;
        match answer.status() {
            StatusCode::OK => return keep(answer, &arguments.output).await,
            StatusCode::ACCEPTED if Instant::now() < until => tokio::time::sleep(PACE).await,
            StatusCode::ACCEPTED => bail!("the snapshot is not there after {} minutes", arguments.limit),
            status => bail!("the node answers {status}: {}", answer.text().await.unwrap_or_default().trim()),
        }
    }
}

/// A client with the credentials of a kubeconfig of one cluster and one user,
/// which are inside it, as kubeadm and `kaas-agent kubeconfig` write them.
fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let text = fs::read_to_string(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let field = |name| embedded(&text, name).with_context(|| format!("understanding {}", kubeconfig.display()));
    let mut identity = field("client-certificate-data")?;
    identity.extend(field("client-key-data")?);
    let authority = Certificate::from_pem_bundle(&field("certificate-authority-data")?)?;
    Ok(Client::builder()
        .https_only(true)
        .no_proxy()
        .tls_certs_only(authority)
        .identity(Identity::from_pem(&identity).context("using the kubeconfig's certificate")?)
        .connect_timeout(SILENCE)
        .read_timeout(SILENCE)
        .build()?)
}

/// The one value of this name, decoded. JSON and YAML of this kind have each on
/// a line of its own.
fn embedded(kubeconfig: &str, name: &str) -> anyhow::Result<Vec<u8>> {
    let values: Vec<&str> = kubeconfig
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").trim_start_matches('"').strip_prefix(name))
        .filter_map(|rest| rest.trim_start_matches('"').strip_prefix(':'))
        .map(|value| value.trim().trim_end_matches(',').trim_matches('"'))
        .collect();
    match values.as_slice() {
        [value] => BASE64_STANDARD.decode(value).with_context(|| format!("{name} is not base64")),
        [] => bail!("{name} is not in it: a kubeconfig with its certificates inside is needed"),
        _ => bail!("it has several {name}: give a kubeconfig of this one cluster and one user"),
    }
}

/// Writes the answer beside its place, verifies it, and renames it.
async fn keep(mut answer: Response, output: &Path) -> anyhow::Result<u64> {
    let promised = answer.content_length().context("the node does not say how long the snapshot is")?;
    let digest = answer.headers().get("repr-digest").and_then(|digest| digest.to_str().ok()).unwrap_or_default();
    let digest = digest.strip_prefix("sha-256=:").and_then(|rest| rest.strip_suffix(':'));
    let digest = digest.context("the node does not say which SHA-256 the snapshot has")?.to_owned();
    let name = output.file_name().with_context(|| format!("{} is not a file's name", output.display()))?;
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    let temporary = folder.join(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context("clearing up"),
        _ => {}
    }
    let written = write(&mut answer, &temporary).await;
    let checked = written.and_then(|(size, sum)| {
        if size != promised {
            bail!("the snapshot has {promised} bytes, and {size} came");
        }
        if BASE64_STANDARD.encode(sum) != digest {
            bail!("the snapshot's SHA-256 is not the one that the node said");
        }
        fs::rename(&temporary, output)?;
        File::open(folder)?.sync_all()?;
        Ok(size)
    });
    if checked.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    checked.with_context(|| format!("keeping {}", output.display()))
}

async fn write(answer: &mut Response, to: &Path) -> anyhow::Result<(u64, [u8; 32])> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let (mut size, mut sum) = (0, Sha256::new());
    while let Some(part) = answer.chunk().await? {
        file.write_all(&part)?;
        sum.update(&part);
        size += part.len() as u64;
    }
    file.sync_all()?;
    Ok((size, sum.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    const YAML: &str = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: x\nusers:\n- name: a\n  \
                        user:\n    client-certificate-data: Qg==\n    client-key-data: Qw==\n";

    #[test]
    fn credentials_are_found_in_yaml_and_json_and_must_be_of_one_cluster() {
        assert_eq!(embedded(YAML, "certificate-authority-data").unwrap(), b"A");
        assert_eq!(embedded(YAML, "client-key-data").unwrap(), b"C");
        let json = "{\n  \"user\": {\n    \"client-key-data\": \"Qw==\"\n  }\n}";
        assert_eq!(embedded(json, "client-key-data").unwrap(), b"C");
        let two = format!("{YAML}{YAML}");
        assert!(embedded(&two, "client-key-data").unwrap_err().to_string().contains("several client-key-data"));
        assert!(embedded("{}", "client-key-data").unwrap_err().to_string().contains("is not in it"));
    }

    /// What comes of an answer with this header and body.
    fn kept(header: &str, body: &str, output: &Path) -> anyhow::Result<u64> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{header}\r\n{body}");
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kept = runtime.block_on(async {
            let answer = Client::builder().no_proxy().build()?.get(address).send().await?;
            keep(answer, output).await
        });
        serving.join().unwrap();
        kept
    }

    #[test]
    fn only_what_is_whole_and_has_the_right_sum_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("s.db");
        let digest = "Repr-Digest: sha-256=:TBNxem9gT9Qm4t1hqLut8mZi/y18DV2kyNd/WaOcKC4=:\r\n";
        let length = "Content-Length: 7\r\n";
        let wrong = "Repr-Digest: sha-256=:AAAA:\r\n";
        for (header, body) in [
            (format!("{digest}{length}"), "a sto"),
            (format!("{wrong}{length}"), "a store"),
            (length.to_owned(), "a store"),
            (digest.to_owned(), "a store"),
        ] {
            assert!(kept(&header, body, &output).is_err(), "{header}{body}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{header}{body}");
        }
        assert_eq!(kept(&format!("{digest}{length}"), "a store", &output).unwrap(), 7);
        assert_eq!(fs::read_to_string(&output).unwrap(), "a store");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
