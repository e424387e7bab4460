//! The route of the deployer. It issues an administrator's certificate to a client that proves the deployer's key of this node.
//! Any client may ask. Without the proof it learns only the reason of the refusal. [`contract::deployer`] describes the
//! protocol.
//!
//! The key on the data disk counts, not the one that the agent has started with. A changed key is worthless as soon as the
//! change is saved.

use std::path::Path;
use std::time::SystemTime;

use contract::codes;
use contract::deployer::{Issued, PublicKey, Request, Session, public_keys, user};
use contract::json;
use contract::swap::Rejection;
use hyper::StatusCode;

use super::EndpointContext;
use super::access::Caller;
use super::answer::{self, Answer};
use super::swap::json_answer;
use crate::cluster::certificates::issue;
use crate::cluster::records::Records;
use crate::intake::config::ControlPlane;

/// The reason is only in the journal. Strangers do not learn it.
const SEE_JOURNAL: &str = "this node cannot look into its records now: see the journal of kaas-agent";

pub(super) fn answer(context: &EndpointContext, caller: &Caller, body: &[u8]) -> Answer {
    let Some(session) = &caller.session else {
        return answer::line(StatusCode::BAD_REQUEST, "this is asked over TLS 1.3 only");
    };
    let request: Request = match json::read_strictly(body) {
        Ok(request) => request,
        Err(error) => return answer::line(StatusCode::BAD_REQUEST, &format!("this is no deployer's request: {error}")),
    };
    let holder = match request.holder.as_deref().map(str::parse::<PublicKey>).transpose() {
        Ok(holder) => holder,
        Err(error) => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("the holder's key cannot be used: {error}"));
        }
    };
    match judge(context, session, &request).and_then(|proved| sign(context, caller, &proved, holder.as_ref())) {
        Ok(issued) => json_answer(StatusCode::OK, &issued),
        Err(refused) => {
            log::debug!("the endpoint, with a deployer from {}: {}: {}", caller.from(), refused.code, refused.reason);
            json_answer(status_of(&refused), &refused)
        }
    }
}

/// The users of this node's deployer keys. None without a key, or if it cannot be read.
pub(super) fn current_users(root: &Path) -> Vec<String> {
    let Ok(Some(config)) = Records::new(root).config() else { return Vec::new() };
    config.control_plane().map(|config| keys_of(config).iter().map(user).collect()).unwrap_or_default()
}

pub(super) fn keys_of(config: &ControlPlane) -> Vec<PublicKey> {
    config.deployer_public_key.as_ref().and_then(|keys| public_keys(keys).ok()).unwrap_or_default()
}

struct ProvenDeployer {
    key: PublicKey,
    config: ControlPlane,
}

fn judge(context: &EndpointContext, session: &Session, request: &Request) -> Result<ProvenDeployer, Rejection> {
    let records = Records::new(&context.root);
    let looked = || -> anyhow::Result<_> {
        let config = records.config()?;
        Ok((records.progress()?.formed, config.map(|config| config.control_plane().cloned()).transpose()?))
    };
    let (formed, config) = looked().map_err(|error| {
        log::warn!("a deployer asks, and the records cannot be read: {error:#}");
        Rejection::of(&codes::DEPLOYER_FAILED, SEE_JOURNAL)
    })?;
    let fingerprints = context.reporter.status().fingerprints;
    let (true, Some(config), Some(fingerprints)) = (formed, config, fingerprints) else {
        let reason = "this node is not part of a formed cluster yet: ask again in a moment";
        return Err(Rejection::of(&codes::DEPLOYER_NOT_FORMED, reason));
    };
    let keys = keys_of(&config);
    if keys.is_empty() {
        let reason = "this node has no deployer's key: set deployer-public-key on each control-plane node";
        return Err(Rejection::of(&codes::DEPLOYER_NO_KEY, reason));
    }
    let Some(key) = keys.into_iter().find(|key| request.key == key.fingerprint()) else {
        let reason = "this node has another deployer's key: it was changed, or was never this one";
        return Err(Rejection::of(&codes::DEPLOYER_OTHER_KEY, reason));
    };
    if !session.is_proved(request, &key, &fingerprints.ca) {
        let reason = "the proof is not of this key, of this session and of this node's cluster: read the fingerprints \
                      through the hypervisor again, and ask again";
        return Err(Rejection::of(&codes::DEPLOYER_NOT_PROVED, reason));
    }
    Ok(ProvenDeployer { key, config })
}

fn sign(
    context: &EndpointContext,
    caller: &Caller,
    ProvenDeployer { key, config }: &ProvenDeployer,
    holder: Option<&PublicKey>,
) -> Result<Issued, Rejection> {
    let holder = holder.unwrap_or(key);
    issue::for_deployer(&context.root, config, (key, holder), &caller.from(), SystemTime::now()).map_err(|error| {
        log::error!("issuing a deployer's certificate: {error:#}");
        Rejection::of(&codes::DEPLOYER_FAILED, format!("no certificate could be issued: {error:#}"))
    })
}

fn status_of(refused: &Rejection) -> StatusCode {
    let is = |codes: &[&codes::Code]| codes.iter().any(|code| code.code == refused.code);
    if is(&[&codes::DEPLOYER_FAILED]) {
        StatusCode::INTERNAL_SERVER_ERROR
    } else if is(&[&codes::DEPLOYER_OTHER_KEY, &codes::DEPLOYER_NOT_PROVED]) {
        StatusCode::FORBIDDEN
    } else {
        StatusCode::CONFLICT
    }
}

#[cfg(test)]
pub(super) mod tests;
