//! The requests that are not decided yet, up to a number for each requester. A requester may send as many as the store
//! holds, and each control-plane node looks every few seconds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::Context as _;

use super::{REQUESTS, Request, by_age, joining, serving, told, turns};
use crate::cluster::kubernetes::api::Api;

/// How many requests of one requester are looked at. A token for one node, or a node, sends one or two.
pub(super) const OF_ONE: usize = 300;

/// How many requests with one token may be for one node, or for none. The holder of a token for many nodes may request
/// the same one in vain any number of times.
pub(super) const OF_NODE: usize = 10;

/// How many requests are looked at in all. A client that may choose its names sends them under any number of names.
pub(super) const OF_ALL: usize = 2000;

/// The open requests, up to these numbers. With one token, each node's first request comes before any node's second. In
/// all, each requester's first comes before any requester's second, and of these the oldest first.
#[derive(Default)]
pub(super) struct PendingRequests {
    held: Vec<Request>,
    /// How many more there are, by requester.
    left: BTreeMap<String, usize>,
    /// The same for requesters that are too many to be named.
    left_of_others: usize,
}

impl PendingRequests {
    /// Adds a request. Holds at most twice as many as are looked at.
    fn take(&mut self, request: Request) {
        self.held.push(request);
        if self.held.len() >= 2 * OF_ALL {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        by_age(&mut held);
        // A node's own requests are not counted by node. Those with a token that name no node are of one kind.
        let of_node = |Request { spec, .. }: &Request| {
            joining::token_of(spec).map(|_| (spec.username.clone(), joining::node_of(spec)))
        };
        let (alone, of_nodes): (Vec<_>, Vec<_>) = held.into_iter().partition(|request| of_node(request).is_none());
        let mut of_one: Vec<(usize, Request)> = alone.into_iter().map(|request| (0, request)).collect();
        of_one.extend(self.first(turns(of_nodes, of_node), OF_NODE));
        of_one.sort_by(|(turn, one), (later, other)| (turn, one.age()).cmp(&(later, other.age())));
        let of_one = of_one.into_iter().map(|(_, request)| request).collect();
        let mut of_all = self.first(turns(of_one, |request| request.spec.username.clone()), OF_ONE);
        of_all.sort_by_key(|(turn, _)| *turn);
        let mut of_all: Vec<Request> = of_all.into_iter().map(|(_, request)| request).collect();
        for request in of_all.drain(OF_ALL.min(of_all.len())..) {
            self.leave(request.spec.username);
        }
        self.held = of_all;
    }

    /// The requests whose turn is one of the first.
    fn first(&mut self, turns: Vec<(usize, Request)>, turn: usize) -> Vec<(usize, Request)> {
        let (first, later): (Vec<_>, Vec<_>) = turns.into_iter().partition(|(own, _)| *own < turn);
        later.into_iter().for_each(|(_, request)| self.leave(request.spec.username));
        first
    }

    fn leave(&mut self, who: String) {
        if self.left.len() < OF_ALL || self.left.contains_key(&who) {
            *self.left.entry(who).or_default() += 1;
        } else {
            self.left_of_others += 1;
        }
    }

    /// Messages about requests that are not looked at, first of the requester with the most.
    pub fn left(&self) -> Vec<String> {
        let mut left: Vec<_> = self.left.iter().collect();
        left.sort_by_key(|(_, more)| std::cmp::Reverse(**more));
        let told = left.into_iter().map(|(who, more)| {
            told(&format!(
                "{who} has {more} more requests than are looked at: delete its token or its node, if it has no reason for that"
            ))
        });
        let others = Some(self.left_of_others).filter(|more| *more > 0);
        told.chain(others.map(|more| format!("others have {more} more"))).collect()
    }

    pub fn into_requests(self) -> Vec<Request> {
        self.held
    }
}

impl Api {
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

    /// The requests that are not decided yet.
    pub(super) fn open_requests(&self) -> anyhow::Result<PendingRequests> {
        let mut open = PendingRequests::default();
        for signer in [joining::SIGNER, serving::SIGNER] {
            self.each_open(signer, |request| {
                open.take(request);
                ControlFlow::Continue(())
            })?;
        }
        open.cut();
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
