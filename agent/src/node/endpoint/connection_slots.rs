//! Slots for connections. A caller who has proved to be an administrator or monitoring keeps its slot. Of all others,
//! the one that has waited longest gives way to a new caller. Therefore idle or silent callers cannot block others. The
//! cluster's own nodes, by their addresses, have slots that no other address can take.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many connections may be open at once from addresses outside the cluster …
pub(super) const CONNECTIONS: usize = 64;
/// … and how many from one address, in the cluster or not.
pub(super) const PER_ADDRESS: usize = 16;

#[derive(Default)]
pub(super) struct ConnectionSlots(Mutex<Occupancy>);

#[derive(Default)]
struct Occupancy {
    nodes: BTreeSet<IpAddr>,
    /// By their numbers, which rise: the first has waited longest.
    holders: BTreeMap<u64, SlotHolder>,
    next: u64,
}

struct SlotHolder {
    from: IpAddr,
    /// Whether the caller has shown a certificate with rights.
    known: bool,
    end: Arc<Notify>,
}

/// The slot of one connection, while it lasts.
pub(super) struct ConnectionSlot {
    seats: Arc<ConnectionSlots>,
    number: u64,
    end: Arc<Notify>,
}

impl ConnectionSlots {
    /// Sets the addresses of the cluster's own nodes, including this one.
    pub(super) fn keep_for(&self, nodes: BTreeSet<IpAddr>) {
        self.state().nodes = nodes;
    }

    /// A slot for a caller from this address. `None` if known callers hold all slots that it could get.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr) -> Option<ConnectionSlot> {
        let mut state = self.state();
        if let Some(crowd) = state.in_the_way(from) {
            let oldest = state.holders.iter().find(|(_, taken)| !taken.known && crowd.has(taken.from));
            let (&number, _) = oldest?;
            if let Some(taken) = state.holders.remove(&number) {
                taken.end.notify_one();
            }
        }
        let (number, end) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.holders.insert(number, SlotHolder { from, known: false, end: Arc::clone(&end) });
        Some(ConnectionSlot { seats: Arc::clone(self), number, end })
    }

    fn state(&self) -> MutexGuard<'_, Occupancy> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses. One of their callers has to give up its slot.
enum AddressGroup {
    From(IpAddr),
    Any(BTreeSet<IpAddr>),
}

impl AddressGroup {
    fn has(&self, address: IpAddr) -> bool {
        match self {
            Self::From(one) => *one == address,
            Self::Any(all) => all.contains(&address),
        }
    }
}

impl Occupancy {
    /// The addresses whose callers block a new one from this address. One of them has to give up its slot first.
    fn in_the_way(&self, from: IpAddr) -> Option<AddressGroup> {
        if self.holders.values().filter(|taken| taken.from == from).count() >= PER_ADDRESS {
            return Some(AddressGroup::From(from));
        }
        let strangers = || self.holders.values().filter(|taken| !self.nodes.contains(&taken.from));
        if self.nodes.contains(&from) || strangers().count() < CONNECTIONS {
            return None;
        }
        // The addresses with the most waiting callers.
        let mut waiting: BTreeMap<IpAddr, usize> = BTreeMap::new();
        strangers().filter(|taken| !taken.known).for_each(|taken| *waiting.entry(taken.from).or_default() += 1);
        let most = waiting.values().copied().max();
        Some(AddressGroup::Any(
            waiting.into_iter().filter(|(_, count)| Some(*count) == most).map(|(from, _)| from).collect(),
        ))
    }
}

impl ConnectionSlot {
    /// Marks the caller as known: it has shown that it is an administrator or monitoring. The slot is no longer taken away.
    pub(super) fn hold(&self) {
        if let Some(taken) = self.seats.state().holders.get_mut(&self.number) {
            taken.known = true;
        }
    }

    pub(super) async fn is_taken_away(&self) {
        self.end.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.seats.state().holders.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, u8::try_from(last).unwrap()])
    }

    /// Slots that are all held by strangers, with the most allowed from each address.
    fn full(seats: &Arc<ConnectionSlots>) -> Vec<ConnectionSlot> {
        (0..CONNECTIONS).map(|number| seats.take(address(number / PER_ADDRESS)).unwrap()).collect()
    }

    fn is_there(seat: &ConnectionSlot) -> bool {
        seat.seats.state().holders.contains_key(&seat.number)
    }

    #[test]
    fn oldest_caller_of_an_address_gives_way() {
        let seats = Arc::new(ConnectionSlots::default());
        let other = seats.take(address(9)).unwrap();
        let held: Vec<ConnectionSlot> = (0..PER_ADDRESS).map(|_| seats.take(address(1)).unwrap()).collect();
        let next = seats.take(address(1)).unwrap();
        assert!(!is_there(&held[0]) && held[1..].iter().all(is_there) && is_there(&other) && is_there(&next));
        // Known callers keep their slots. The number of others falls to none.
        held[1..].iter().for_each(ConnectionSlot::hold);
        let after = seats.take(address(1)).unwrap();
        assert!(!is_there(&next) && held[1..].iter().all(is_there));
        after.hold();
        assert!(seats.take(address(1)).is_none());
        assert!(seats.take(address(2)).is_some());
        drop(after);
        assert!(seats.take(address(1)).is_some());
    }

    #[test]
    fn strangers_from_many_addresses_block_no_administrator() {
        let seats = Arc::new(ConnectionSlots::default());
        let held = full(&seats);
        let administrator = seats.take(address(100)).unwrap();
        administrator.hold();
        assert!(!is_there(&held[0]), "the oldest of those who hold most");
        // Later callers take the slots of strangers, again and again.
        for round in 0..3 * CONNECTIONS {
            let _ = seats.take(address(101 + round % 100)).unwrap();
        }
        assert!(is_there(&administrator));
        assert!(seats.state().holders.len() <= CONNECTIONS);
    }

    #[test]
    fn newcomer_gives_way_after_holders_of_more_slots() {
        let seats = Arc::new(ConnectionSlots::default());
        let newcomer = seats.take(address(50)).unwrap();
        let held = full(&seats);
        assert!(is_there(&newcomer) && !is_there(&held[0]));
    }

    #[test]
    fn strangers_cannot_take_the_slots_of_nodes() {
        let seats = Arc::new(ConnectionSlots::default());
        seats.keep_for([address(200), address(201)].into());
        let node = seats.take(address(200)).unwrap();
        let held = full(&seats);
        held.iter().for_each(ConnectionSlot::hold);
        assert!(is_there(&node), "it waits, and is no stranger");
        assert!(seats.take(address(100)).is_none(), "all are held by callers who are known");
        let nodes: Vec<ConnectionSlot> = (0..PER_ADDRESS).map(|_| seats.take(address(201)).unwrap()).collect();
        assert!(nodes.iter().chain(&held).all(is_there));
    }
}
