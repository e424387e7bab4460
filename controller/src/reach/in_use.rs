//! The addresses in use of all pools. A claim of an address needs all of them, and there are as many as nodes of all clusters.
//! Concurrent callers share one list. A caller's list begins after its call, so it contains what the caller created before.
//!
//! The next list begins after the former one has ended, and at the earliest [`APART`] after that one began. The number of lists
//! depends on the time and not on the number of callers. In memory are the last list and those that a caller still reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::kind::read;
use crate::objects::{PoolAddress, PoolAddressSpec};

/// Time to wait before a list for further callers.
const GATHERED: Duration = Duration::from_millis(10);
/// The shortest time between the beginnings of two lists. Callers in between share the later one.
const APART: Duration = Duration::from_millis(100);

/// The addresses in use, from one list.
#[derive(Debug)]
pub struct AddressesInUse {
    number: u64,
    /// In the order of their addresses and pools.
    addresses: Vec<Address>,
}

/// The part of a `PoolAddress` that callers here need.
#[derive(Debug)]
struct Address {
    spec: PoolAddressSpec,
    name: Option<String>,
    uid: Option<String>,
    version: Option<String>,
    going: Option<Time>,
}

impl AddressesInUse {
    /// Reads the objects of the list with this number.
    ///
    /// # Errors
    /// One of the objects cannot be read: its address and its claimant are unknown.
    pub(super) fn read(number: u64, all: &[Value]) -> Result<Self, Failure> {
        let one = |object: &Value| -> Result<Address, Failure> {
            let PoolAddress { metadata, spec } = read(object)?;
            let (name, uid, version) = (metadata.name, metadata.uid, metadata.resource_version);
            Ok(Address { spec, name, uid, version, going: metadata.deletion_timestamp })
        };
        let mut addresses = all.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        addresses.sort_by(|one, other| key(&one.spec).cmp(&key(&other.spec)));
        Ok(Self { number, addresses })
    }

    /// Later lists have higher numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn specs(&self) -> impl Iterator<Item = &PoolAddressSpec> + Clone {
        self.addresses.iter().map(|address| &address.spec)
    }

    /// Whether this address of this pool is in use, by any claimant.
    pub fn has(&self, spec: &PoolAddressSpec) -> bool {
        self.addresses.binary_search_by(|there| key(&there.spec).cmp(&key(spec))).is_ok()
    }

    /// The objects of a claimant, by its UID, with the fields that their deletion needs.
    pub fn of(&self, uid: Option<&str>) -> Vec<PoolAddress> {
        let own = self.addresses.iter().filter(|address| Some(address.spec.claimant.uid.as_str()) == uid);
        let object = |address: &Address| {
            let mut object = PoolAddress::new("", address.spec.clone());
            object.metadata.name.clone_from(&address.name);
            object.metadata.uid.clone_from(&address.uid);
            object.metadata.resource_version.clone_from(&address.version);
            object.metadata.deletion_timestamp.clone_from(&address.going);
            object
        };
        own.map(object).collect()
    }
}

fn key(spec: &PoolAddressSpec) -> (&str, &str) {
    (spec.address.as_str(), spec.pool_ref.name.as_str())
}

/// Makes one list at a time.
#[derive(Default)]
pub(super) struct Lists {
    /// The holder makes the next list. If its future is dropped, the next waiting caller makes the list.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of lists that have begun, and the time at which the last one began.
    begun: u64,
    at: Option<Instant>,
    /// The last list that has ended, with its number.
    last: Option<(u64, Result<Arc<AddressesInUse>, Failure>)>,
}

impl Lists {
    /// The result of a list that begins after the first poll, or of any list with at least this number. `list` is not polled if
    /// the list of another caller is new enough.
    ///
    /// # Errors
    /// The list failed. All callers that waited for it get the same error.
    pub(super) async fn ask(
        &self,
        since: Option<u64>,
        list: impl Future<Output = Result<Vec<Value>, Failure>> + Send,
    ) -> Result<Arc<AddressesInUse>, Failure> {
        let wanted = {
            let state = self.state();
            match (&state.last, since) {
                (Some((number, Ok(all))), Some(since)) if *number >= since => return Ok(Arc::clone(all)),
                _ => state.begun + 1,
            }
        };
        let _turn = self.turn.lock().await;
        if let Some(answer) = self.answered(wanted) {
            return answer;
        }
        let earliest = self.state().at.map(|at| at + APART);
        sleep_until((Instant::now() + GATHERED).max(earliest.unwrap_or_else(Instant::now))).await;
        let number = self.begins();
        let answer = list.await.and_then(|all| AddressesInUse::read(number, &all)).map(Arc::new);
        self.state().last = Some((number, again(&answer)));
        answer
    }

    /// The result of the last list, if it has at least this number.
    fn answered(&self, wanted: u64) -> Option<Result<Arc<AddressesInUse>, Failure>> {
        let state = self.state();
        state.last.as_ref().filter(|(number, _)| *number >= wanted).map(|(_, answer)| again(answer))
    }

    fn begins(&self) -> u64 {
        let mut state = self.state();
        (state.begun, state.at) = (state.begun + 1, Some(Instant::now()));
        state.begun
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of the result, for another caller that waited for it.
fn again(answer: &Result<Arc<AddressesInUse>, Failure>) -> Result<Arc<AddressesInUse>, Failure> {
    match answer {
        Ok(all) => Ok(Arc::clone(all)),
        Err(failure) => Err(failure.again()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU8, Ordering};

    use futures_util::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::decisions::claimed;
    use crate::objects::{Claimant, Purpose};
    use crate::term::TermEnded;

    const TAKES: Duration = Duration::from_secs(1);

    fn object(last: u8, uid: &str) -> PoolAddress {
        let text = str::to_owned;
        let claimant = Claimant {
            kind: text("TenantCluster"),
            namespace: text("team-blue"),
            name: text("shop"),
            uid: text(uid),
            purpose: Purpose::ServiceVip,
            index: u32::from(last),
        };
        claimed("p", Ipv4Addr::new(10, 0, 0, last), claimant)
    }

    /// An API server whose lists take [`TAKES`]. The only address in a list is the number of lists that had begun.
    #[derive(Default)]
    struct Slow(AtomicU8);

    impl Slow {
        async fn list(&self) -> Result<Vec<Value>, Failure> {
            let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            sleep(TAKES).await;
            Ok(vec![serde_json::to_value(object(number, "u")).unwrap()])
        }

        async fn fails(&self, why: Failure) -> Result<Vec<Value>, Failure> {
            self.list().await.and(Err(why))
        }

        fn begun(&self) -> u8 {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn said(answer: Result<Arc<AddressesInUse>, Failure>) -> Vec<String> {
        answer.unwrap().specs().map(|spec| spec.address.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn callers_during_a_list_share_the_next_one() {
        let (lists, api) = (Lists::default(), Slow::default());
        let late = async {
            sleep(TAKES / 2).await;
            join_all((0..100).map(|_| lists.ask(None, api.list()))).await
        };
        let (first, late) = tokio::join!(lists.ask(None, api.list()), late);
        assert_eq!(said(first), ["10.0.0.1"]);
        for answer in late {
            assert_eq!(said(answer), ["10.0.0.2"], "one that was begun after he had asked");
        }
        assert_eq!(api.begun(), 2);
        assert_eq!(said(lists.ask(None, api.list()).await), ["10.0.0.3"], "nobody is told what was before he asked");
        assert_eq!(
            said(lists.ask(Some(2), api.list()).await),
            ["10.0.0.3"],
            "who has seen an older one is told the last"
        );
        assert_eq!(said(lists.ask(Some(4), api.list()).await), ["10.0.0.4"]);
    }

    #[tokio::test(start_paused = true)]
    async fn short_lists_are_at_least_apart() {
        let (lists, begun) = (Lists::default(), AtomicU8::default());
        let list = || async {
            begun.fetch_add(1, Ordering::SeqCst);
            Ok::<Vec<Value>, Failure>(Vec::new())
        };
        let ask = |number: u64| {
            let (lists, list) = (&lists, list());
            async move {
                sleep(Duration::from_millis(number)).await;
                lists.ask(None, list).await.map(|all| all.number())
            }
        };
        // One call each millisecond, for a second.
        let answers = join_all((0..1000).map(ask)).await;
        assert!(answers.iter().all(Result::is_ok));
        assert!((10..=11).contains(&begun.load(Ordering::SeqCst)), "{begun:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_list_fails_for_waiting_callers_only() {
        let (lists, api) = (Lists::default(), Slow::default());
        let unknown = || api.fails(Failure::Unknown(anyhow::anyhow!("nobody answers")));
        let answers = join_all((0..3).map(|_| lists.ask(None, unknown()))).await;
        for answer in answers {
            match answer {
                Err(Failure::Unknown(why)) => assert_eq!(why.to_string(), "nobody answers"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(api.begun(), 1);
        assert_eq!(said(lists.ask(Some(1), api.list()).await), ["10.0.0.2"], "nor for who has seen as much before");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_term_fails_all_callers() {
        let (lists, api) = (Lists::default(), Slow::default());
        let answers = join_all((0..3).map(|_| lists.ask(None, api.fails(Failure::Ended(TermEnded))))).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(Failure::Ended(_)))), "{answers:?}");
        assert_eq!(api.begun(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_caller_replaces_a_dropped_list() {
        let (lists, api) = (Lists::default(), Slow::default());
        let breaks_off = async {
            sleep(TAKES / 4).await;
            timeout(TAKES * 5 / 4, lists.ask(None, api.list())).await
        };
        let others = async {
            sleep(TAKES / 2).await;
            timeout(TAKES * 10, join_all((0..3).map(|_| lists.ask(None, api.list())))).await
        };
        let (first, broken, others) = tokio::join!(lists.ask(None, api.list()), breaks_off, others);
        assert_eq!(said(first), ["10.0.0.1"]);
        assert!(broken.is_err(), "it has begun the second list");
        for answer in others.expect("nobody waits for ever") {
            assert_eq!(said(answer), ["10.0.0.3"]);
        }
        assert_eq!(api.begun(), 3);
    }

    #[test]
    fn addresses_keep_their_claimant_and_deletion_fields() {
        let mut own = object(9, "u");
        (own.metadata.uid, own.metadata.resource_version) = (Some("of it".to_owned()), Some("7".to_owned()));
        let all = [object(10, "v"), own.clone()].map(|object| serde_json::to_value(object).unwrap());
        let read = AddressesInUse::read(3, &all).unwrap();
        own.metadata.labels = None;
        assert_eq!((read.number(), read.of(Some("u")), read.of(None)), (3, vec![own.clone()], Vec::new()));
        let elsewhere = PoolAddressSpec { pool_ref: crate::objects::Reference::to("q"), ..own.spec.clone() };
        assert!(read.has(&own.spec) && read.has(&object(10, "w").spec), "whosever it is");
        assert!(!read.has(&elsewhere) && !read.has(&object(11, "u").spec));
        assert!(AddressesInUse::read(3, &[Value::Null]).is_err());
    }
}
