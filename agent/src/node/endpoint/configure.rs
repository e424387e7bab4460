//! The route that changes properties of the node: for now the deployer's keys only. They are saved on the data disk, where the
//! endpoint and maintenance read them at each use, so the agent does not restart.

use std::path::Path;

use contract::codes;
use contract::configure::Properties;
use contract::deployer::{public_keys, written};
use contract::json;
use contract::properties::DEPLOYER_PUBLIC_KEY;
use contract::properties::parse::quoted;
use contract::swap::Rejection;
use hyper::StatusCode;

use super::EndpointContext;
use super::answer::{self, Answer};
use super::deployer::keys_of;
use super::swap::json_answer;
use crate::cluster::records::Records;
use crate::intake::config::Config;

pub(super) fn answer(context: &EndpointContext, _: &str, body: &[u8]) -> Answer {
    let asked: Properties = match json::read_strictly(body) {
        Ok(asked) => asked,
        Err(error) => {
            return answer::line(StatusCode::BAD_REQUEST, &format!("this is no change of properties: {error}"));
        }
    };
    match change(&context.root, &asked) {
        Ok(Ok(now)) => json_answer(StatusCode::OK, &now),
        Ok(Err(refused)) => json_answer(StatusCode::CONFLICT, &refused),
        Err(error) => answer::line(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
    }
}

/// Changes the properties together, or refuses them all. One of the present keys stays, so that their holder is not locked out
/// by a mistake: `kaas-agent configure` sets any key.
fn change(root: &Path, asked: &Properties) -> anyhow::Result<Result<Properties, Rejection>> {
    let refused = |code: &codes::Code, reason: String| Ok(Err(Rejection::of(code, reason)));
    let records = Records::new(root);
    if let Some(other) = asked.properties.keys().find(|key| key.as_str() != DEPLOYER_PUBLIC_KEY) {
        let reason = format!("{} cannot be changed here: use `kaas-agent configure` on the node", quoted(other));
        return refused(&codes::PROPERTY_FIXED, reason);
    }
    let config = records.config()?.filter(|_| asked.properties.contains_key(DEPLOYER_PUBLIC_KEY));
    let Some(config) = config else { return Ok(Ok(Properties::default())) };
    if !records.progress()?.formed {
        let reason = "this node is not part of a formed cluster yet: ask again in a moment".to_owned();
        return refused(&codes::DEPLOYER_NOT_FORMED, reason);
    }
    let mut config = config.control_plane()?.clone();
    let keys = match public_keys(&asked.properties[DEPLOYER_PUBLIC_KEY]) {
        Ok(keys) => keys,
        Err(error) => return refused(&codes::PROPERTY_MALFORMED, format!("{DEPLOYER_PUBLIC_KEY}: {error}")),
    };
    let present = keys_of(&config);
    if !present.is_empty() && !keys.iter().any(|key| present.contains(key)) {
        let reason = "none of these keys is one that the node has: give it both, then the new one alone".to_owned();
        return refused(&codes::DEPLOYER_OTHER_KEY, reason);
    }
    let text = written(&keys);
    config.deployer_public_key = Some(text.clone());
    if records.update_config(&Config::ControlPlane(config), None)? {
        log::info!("the deployer's keys were changed over the endpoint: this node has {} of them", keys.len());
    }
    Ok(Ok(Properties { properties: [(DEPLOYER_PUBLIC_KEY.to_owned(), text)].into() }))
}
