//! `kaas-agent prepare-swap` and `commit-swap`: send requests to the running agent over the node's endpoint, as an
//! administrator.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;
use contract::node::Node;
use contract::ports;
use contract::swap::Image;
use contract::swap::{Rejection, Request, Stage, SwapState};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::cluster::kubernetes::PKI;
use crate::cluster::pki::groups::ADMINISTRATORS;
use crate::cluster::pki::{CertificateAuthorities, Leaf};
use crate::cluster::records::Records;
use crate::host::files;
use crate::host::https::{Answer, Client};
use crate::intake::config::Output;

/// How long the agent may take to answer. It asks the other members in this time.
const ASKING: Duration = Duration::from_secs(60);
/// How long the command's own certificate is valid: longer than any drain.
const VALIDITY: Duration = Duration::from_secs(3600 * 24);
const PACE: Duration = Duration::from_secs(1);

/// `kaas-agent prepare-swap`
#[derive(Args)]
pub struct Options {
    /// Version of the image that may take the data disk
    #[arg(long, value_name = "VERSION", required_unless_present = "cancel", requires = "to_build")]
    to_version: Option<String>,
    /// Its build identifier: what follows the plus sign in the OVA's full version
    #[arg(long, value_name = "BUILD", requires = "to_version")]
    to_build: Option<String>,
    /// How long pods may take to move away, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    drain: u64,
    /// The image is older than this one, and that is meant
    #[arg(long)]
    downgrade: bool,
    /// Fingerprint of the key that has signed the image, if it is another one than the pinned one; it is pinned at the commit
    #[arg(long, value_name = "FINGERPRINT", requires = "to_version")]
    publisher: Option<String>,
    /// Undo what was prepared: a swap, or an evacuation that an upgrade has asked for
    #[arg(long, conflicts_with_all = ["to_version", "to_build", "downgrade", "publisher"])]
    cancel: bool,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prepares a swap and waits until the VM may be shut down, or cancels it. After an error the node is as before.
pub fn prepare(root: &Path, options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    let agent = Agent::of(root)?;
    if options.cancel {
        return cancel(&agent, out);
    }
    let (version, build) = options.to_version.clone().zip(options.to_build.clone()).context("version and build")?;
    let to = Image { version, build };
    // If a swap to the same image is under way, this call follows it.
    let same = agent.node()?.swap.filter(|swap| swap.to.as_ref() == Some(&to)).map(|swap| swap.id);
    let id = same.unwrap_or_else(Uuid::new_v4);
    let (drain_seconds, downgrade, publisher) = (options.drain, options.downgrade, options.publisher.clone());
    agent.ask("/v1/swap", &Request { id, to, drain_seconds, downgrade, publisher })?;
    let mut said = None;
    loop {
        let state = agent.node()?.swap.filter(|swap| swap.id == id).context("the swap was cancelled")?;
        let now = Some((state.stage, state.losses.clone()));
        if options.output == Output::Text && said != now {
            writeln!(out, "{state}")?;
            if state.stage == Stage::Draining && !state.losses.is_empty() {
                writeln!(out, "{}", state.losses)?;
            }
        }
        said = now;
        match state.stage {
            Stage::Prepared => {
                if options.output == Output::Json {
                    writeln!(out, "{}", serde_json::to_string_pretty(&state)?)?;
                }
                return Ok(());
            }
            Stage::Failed => bail!("{state}"),
            _ => thread::sleep(PACE),
        }
    }
}

/// Withdraws the prepared evacuation or swap, whichever command requested it.
fn cancel(agent: &Agent, out: &mut impl Write) -> anyhow::Result<()> {
    let node = agent.node()?;
    let swap = node.swap.map(|swap| ("swap", swap.id));
    let evacuation = node.evacuation.map(|evacuation| ("evacuation", evacuation.id));
    // A swap that was taken is rolled back, not withdrawn. An evacuation in addition to it is withdrawn.
    let Some((what, id)) = evacuation.or(swap) else {
        writeln!(out, "no swap is under way")?;
        return Ok(());
    };
    agent.cancel(what, id)?;
    let goes_on = |now: &Node| {
        let swap = now.swap.as_ref().map(|swap| (swap.id, swap.stage));
        let evacuation = now.evacuation.as_ref().map(|evacuation| (evacuation.id, evacuation.stage));
        [swap, evacuation].into_iter().flatten().any(|(now, stage)| now == id && stage != Stage::Failed)
    };
    while goes_on(&agent.node()?) {
        thread::sleep(PACE);
    }
    writeln!(out, "the {what} is withdrawn: this node goes on as before")?;
    Ok(())
}

pub fn commit(root: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let agent = Agent::of(root)?;
    let swap = agent.node()?.swap.filter(|swap| swap.stage == Stage::Taken);
    agent.ask("/v1/commit", &json!({}))?;
    match swap {
        Some(SwapState { from, .. }) => writeln!(
            out,
            "the swap is committed: the former VM{} can no longer take the data disk back",
            from.vm.map(|vm| format!(" {vm}")).unwrap_or_default()
        )?,
        None => writeln!(out, "there was nothing to commit")?,
    }
    Ok(())
}

pub(crate) struct Agent {
    client: Client,
}

impl Agent {
    /// A client with an administrator's certificate.
    pub(crate) fn of(root: &Path) -> anyhow::Result<Self> {
        let config = Records::new(root).config()?.context("this node has no configuration yet")?;
        // Root on this node can read the CA's key anyway. The certificate for this one command is not stored.
        let authority = CertificateAuthorities::read(&files::below(root, PKI))?.kubernetes;
        let group = Some(ADMINISTRATORS[0].to_owned());
        let own = Leaf { group, ..Leaf::client("kaas-agent:command") };
        let own = own.issue_for(&authority, SystemTime::now(), VALIDITY)?;
        let server = SocketAddr::from((config.control_plane()?.address(), ports::NODE));
        let client = Client::new(server, &authority.certificate, &own.certificate, own.key.expose(), ASKING)?;
        Ok(Self { client })
    }

    pub(crate) fn node(&self) -> anyhow::Result<Node> {
        let answer = self.client.get("/v1/node")?;
        serde_json::from_slice(&expect(answer, &[200])?).context("understanding the agent's answer")
    }

    /// An accepted request may still be under way.
    pub(crate) fn ask(&self, path: &str, request: &impl Serialize) -> anyhow::Result<()> {
        expect(self.client.post(path, &serde_json::to_value(request)?)?, &[200, 202]).map(drop)
    }

    fn cancel(&self, what: &str, id: Uuid) -> anyhow::Result<()> {
        let path = if what == "swap" { "swap" } else { "evacuate" };
        expect(self.client.delete(&format!("/v1/{path}/{id}"))?, &[200, 202]).map(drop)
    }
}

fn expect(answer: Answer, codes: &[u16]) -> anyhow::Result<Vec<u8>> {
    if codes.contains(&answer.code) {
        return Ok(answer.body);
    }
    if let Ok(refused) = serde_json::from_slice::<Rejection>(&answer.body) {
        return Err(refused.into());
    }
    bail!("the agent answers {}: {}", answer.code, String::from_utf8_lossy(&answer.body).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_with_its_code() {
        let body = br#"{"code":"swap.quorum","reason":"the etcd member of cp3 is not healthy"}"#;
        let refused = expect(Answer { code: 409, body: body.to_vec() }, &[200]).unwrap_err().to_string();
        assert_eq!(refused, "the etcd member of cp3 is not healthy [swap.quorum]");
        let other = expect(Answer { code: 503, body: b"later\n".to_vec() }, &[200]).unwrap_err().to_string();
        assert_eq!(other, "the agent answers 503: later");
        assert_eq!(expect(Answer { code: 202, body: vec![] }, &[200, 202]).unwrap(), b"");
    }

    #[test]
    fn without_a_configuration_nothing_is_asked() {
        let root = tempfile::tempdir().unwrap();
        let refused = commit(root.path(), &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(refused, "this node has no configuration yet");
    }
}
