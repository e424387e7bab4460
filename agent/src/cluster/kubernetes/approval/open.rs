//! The requests that nobody has decided yet, as many of each who asks as are looked at: who may ask at all may ask as often as the
//! store holds, and each control node looks every few seconds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::Context as _;

use super::{REQUESTS, Request, joining, serving, told};
use crate::cluster::kubernetes::api::Api;

/// How many requests of one who asks are held: the oldest. A token that is for one node, and a node, ask with one or two.
pub(super) const OF_ONE: usize = 300;

/// The open requests.
#[derive(Default)]
pub(super) struct Open {
    of: BTreeMap<String, Vec<Request>>,
    /// How many more there are, by who asks.
    left: BTreeMap<String, usize>,
}

impl Open {
    /// Adds one. Twice as many as are looked at are held at most.
    fn take(&mut self, request: Request) {
        let who = request.spec.username.clone();
        let own = self.of.entry(who.clone()).or_default();
        own.push(request);
        if own.len() >= 2 * OF_ONE {
            self.cut(&who);
        }
    }

    fn cut(&mut self, who: &str) {
        let Some(own) = self.of.get_mut(who).filter(|own| own.len() > OF_ONE) else { return };
        own.sort_by(|one, other| one.metadata.creation_timestamp.cmp(&other.metadata.creation_timestamp));
        *self.left.entry(who.to_owned()).or_default() += own.len() - OF_ONE;
        own.truncate(OF_ONE);
    }

    /// What there is to say of those that are not looked at.
    pub fn left(&self) -> impl Iterator<Item = String> {
        self.left.iter().map(|(who, more)| {
            told(&format!(
                "{who} has {more} more requests than are looked at: delete its token or its node, if it has no reason for that"
            ))
        })
    }

    /// Those that are.
    pub fn into_requests(self) -> Vec<Request> {
        self.of.into_values().flatten().collect()
    }
}

impl Api {
    /// Whether there is any.
    pub(super) fn has_open_requests(&self) -> anyhow::Result<bool> {
        let mut found = false;
        for signer in [joining::SIGNER, serving::SIGNER] {
            self.each_open(signer, |_| {
                found = true;
                ControlFlow::Break(())
            })?;
        }
        Ok(found)
    }

    /// Those that nobody has decided yet.
    pub(super) fn open_requests(&self) -> anyhow::Result<Open> {
        let mut open = Open::default();
        for signer in [joining::SIGNER, serving::SIGNER] {
            self.each_open(signer, |request| {
                open.take(request);
                ControlFlow::Continue(())
            })?;
        }
        let all: Vec<String> = open.of.keys().cloned().collect();
        all.iter().for_each(|who| open.cut(who));
        Ok(open)
    }

    fn each_open(&self, signer: &str, mut take: impl FnMut(Request) -> ControlFlow<()>) -> anyhow::Result<()> {
        let path = format!("{REQUESTS}?fieldSelector=spec.signerName={signer}");
        let is_open = |one: &Request| one.status.conditions.is_empty();
        let each =
            self.each(&path, |request| if is_open(&request) { take(request) } else { ControlFlow::Continue(()) });
        each.context("listing the requests for certificates")
    }
}
