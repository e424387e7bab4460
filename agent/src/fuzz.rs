//! Fuzzing for the tests of parsers that read untrusted bytes. Valid examples, made by code, are changed in a few places and
//! given to the parser. The parser must not panic, hang, or take more memory than it is allowed.
//!
//! Each run of the tests tries the same inputs: [`CASES`] for each parser. With `KAAS_FUZZ_SECONDS` (`make fuzz`) each parser
//! runs for so many seconds, from a random seed or from `KAAS_FUZZ_SEED`. A failure names the seed and the fewest changes that
//! cause it.

use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use nix::time::ClockId;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const CASES: u32 = 2000;
/// How many inputs come from one seed.
const ROUND: u32 = 500;
/// How much processor time one input may take: far more than any needs, for a parser that is not optimised.
const SLOW: Duration = Duration::from_secs(5);
/// How much processor time ends the program, because nothing else ends a parser that hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Changed inputs are at most this factor of the longest example, plus 1 KiB.
const GROWTH: usize = 2;

pub(crate) struct Example {
    bytes: Vec<u8>,
    changed: Range<usize>,
}

impl Example {
    pub(crate) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self { changed: 0..bytes.len(), bytes }
    }

    /// An example in which only these bytes mean something to the parser.
    pub(crate) fn changed_in(bytes: Vec<u8>, range: Range<usize>) -> Self {
        Self { changed: range.start..range.end.min(bytes.len()), bytes }
    }
}

/// A change of an input. Places are fractions of the part that may be changed.
#[derive(Clone, Debug)]
enum Change {
    Bit(Index, u8),
    Byte(Index, u8),
    /// A number of so many bytes, in either byte order: lengths, offsets, counts.
    Number(Index, u64, usize, bool),
    /// Removes everything after the place.
    Cut(Index),
    Remove(Index, usize),
    /// Repeats the bytes at the place so many times.
    Repeat(Index, usize, usize),
    Insert(Index, Vec<u8>),
    /// Bytes of another example.
    Mix(Index, Index, Index, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<Index>;
    let numbers = prop_oneof![
        any::<u64>(),
        0..300u64,
        (0..64u32).prop_map(|bit| 1 << bit),
        (0..64u32).prop_map(|bits| u64::MAX >> bits)
    ];
    let change = prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(at, bit)| Change::Bit(at, bit)),
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        4 => (at(), numbers, prop::sample::select(vec![1usize, 2, 4, 8]), any::<bool>())
            .prop_map(|(at, number, width, big)| Change::Number(at, number, width, big)),
        1 => at().prop_map(Change::Cut),
        2 => (at(), 1..64usize).prop_map(|(at, length)| Change::Remove(at, length)),
        2 => (at(), 1..64usize, 1..200usize).prop_map(|(at, length, times)| Change::Repeat(at, length, times)),
        2 => (at(), prop::collection::vec(any::<u8>(), 1..32)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), at(), at(), 1..200usize).prop_map(|(at, example, from, length)| Change::Mix(at, example, from, length)),
    ];
    prop::collection::vec(change, 0..8)
}

fn changed(examples: &[Example], example: &Example, changes: &[Change]) -> Vec<u8> {
    let longest = examples.iter().map(|example| example.bytes.len()).max().unwrap_or_default() * GROWTH + 1024;
    let mut bytes = example.bytes.clone();
    for change in changes {
        // Insertions and removals shift the part that may be changed. An approximate place is enough.
        let place = |at: &Index, bytes: &[u8]| {
            let (start, end) = (example.changed.start.min(bytes.len()), example.changed.end.min(bytes.len()));
            start + at.index(end - start + 1)
        };
        let end = |from: usize, length: usize, bytes: &[u8]| (from + length).min(bytes.len());
        match change {
            Change::Bit(at, bit) => {
                let at = place(at, &bytes);
                bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            Change::Byte(at, value) => {
                let at = place(at, &bytes);
                bytes[at..].iter_mut().take(1).for_each(|byte| *byte = *value);
            }
            Change::Number(at, number, width, big) => {
                let at = place(at, &bytes);
                let mut number = number.to_le_bytes()[..*width].to_vec();
                if *big {
                    number.reverse();
                }
                bytes[at..].iter_mut().zip(number).for_each(|(byte, new)| *byte = new);
            }
            Change::Cut(at) => bytes.truncate(place(at, &bytes)),
            Change::Remove(at, length) => {
                let at = place(at, &bytes);
                bytes.drain(at..end(at, *length, &bytes));
            }
            Change::Repeat(at, length, times) => {
                let at = place(at, &bytes);
                let part = bytes[at..end(at, *length, &bytes)].repeat(*times);
                bytes.splice(at..at, part);
            }
            Change::Insert(at, part) => {
                let at = place(at, &bytes);
                bytes.splice(at..at, part.iter().copied());
            }
            Change::Mix(at, other, from, length) => {
                let other = &examples[other.index(examples.len())].bytes;
                let (at, from) = (place(at, &bytes), from.index(other.len() + 1));
                bytes.splice(at..at, other[from..end(from, *length, other)].iter().copied());
            }
        }
        bytes.truncate(longest);
    }
    bytes
}

/// Fuzzes a parser. `memory` is the most heap that one input may take at once, in bytes. Writes how many inputs the parser got
/// to standard error.
///
/// # Panics
/// The parser panics, is slow, or takes more memory: with the seed and the changes.
pub(crate) fn fuzz(name: &str, memory: u64, examples: &[Example], parse: impl Fn(&[u8])) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let long = number("KAAS_FUZZ_SECONDS").map(Duration::from_secs);
    let drawn = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let first = number("KAAS_FUZZ_SEED").unwrap_or_else(|| if long.is_some() { drawn() } else { 0 });
    let until = long.map(|long| Instant::now() + long);
    let watch = Watch::start(name);
    let mut rounds = 0;
    while until.map_or(rounds < u64::from(CASES / ROUND), |until| Instant::now() < until) {
        let seed = first + rounds;
        watch.seed.store(seed, Ordering::Relaxed);
        round(name, seed, memory, examples, &parse, &watch);
        rounds += 1;
    }
    let (runs, last) = (rounds * u64::from(ROUND), first + rounds.saturating_sub(1));
    // Written past the test harness, which captures the usual output.
    let _ = writeln!(std::io::stderr(), "fuzzed {name}: {runs} inputs, seeds {first} to {last}");
}

fn round(name: &str, seed: u64, memory: u64, examples: &[Example], parse: &impl Fn(&[u8]), watch: &Watch) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: ROUND, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&(any::<Index>(), changes()), |(example, changes)| {
        let input = changed(examples, &examples[example.index(examples.len())], &changes);
        watch.begin(&input);
        let begun = own_time();
        // A panic must not unwind through the counter, which would continue to count.
        let mut parsed = Ok(());
        let counted = || parsed = catch_unwind(AssertUnwindSafe(|| parse(&input)));
        let taken = allocation_counter::measure(counted).bytes_max;
        let time = own_time().saturating_sub(begun);
        watch.end();
        if let Err(panic) = parsed {
            resume_unwind(panic);
        }
        prop_assert!(taken <= memory, "{taken} bytes of memory for an input of {}", input.len());
        prop_assert!(time <= SLOW, "{time:?} of processor time for an input of {} bytes", input.len());
        Ok(())
    });
    if let Err(error) = result {
        panic!("fuzzing {name} with KAAS_FUZZ_SEED={seed}: {error}");
    }
}

/// The processor time of this thread. Other load on the machine does not count.
fn own_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
}

/// The input of a parser, and the processor time that its thread had used when it began.
struct UnderWay {
    input: Vec<u8>,
    begun: Duration,
}

/// Ends the program if a parser hangs, and reports the input.
struct Watch {
    seed: Arc<AtomicU64>,
    under_way: Arc<Mutex<Option<UnderWay>>>,
    over: Arc<AtomicBool>,
}

impl Watch {
    fn start(name: &str) -> Self {
        let watch = Self { seed: Arc::default(), under_way: Arc::default(), over: Arc::default() };
        let (seed, under_way, over) = (Arc::clone(&watch.seed), Arc::clone(&watch.under_way), Arc::clone(&watch.over));
        let (name, times) = (name.to_owned(), format!("/proc/self/task/{}/stat", nix::unistd::gettid()));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_secs(1));
                let under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(UnderWay { input, begun }) = &*under_way else { continue };
                if time_of(&times).saturating_sub(*begun) > HANGS {
                    let (seed, input) = (seed.load(Ordering::Relaxed), input.escape_ascii());
                    let _ =
                        writeln!(std::io::stderr(), "fuzzing {name} with KAAS_FUZZ_SEED={seed}: it hangs on {input}");
                    std::process::abort();
                }
            }
        });
        watch
    }

    fn begin(&self, input: &[u8]) {
        let under_way = UnderWay { input: input.to_vec(), begun: own_time() };
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = Some(under_way);
    }

    fn end(&self) {
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// The processor time of another thread of this process (proc_pid_stat(5): fields 14 and 15, in hundredths).
fn time_of(stat: &str) -> Duration {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// The fuzzer itself must find defects.
mod tests {
    use super::*;

    #[track_caller]
    fn finds(memory: u64, parse: impl Fn(&[u8])) -> String {
        let found = catch_unwind(AssertUnwindSafe(|| {
            round("a test", 7, memory, &[Example::new(*b"length 4: abcd")], &parse, &Watch::start("a test"));
        }));
        let panic = found.expect_err("nothing was found");
        panic.downcast_ref::<String>().expect("words").clone()
    }

    #[test]
    fn panic_is_found_with_seed_and_few_changes() {
        let defect = |input: &[u8]| assert!(input.first().is_none_or(u8::is_ascii), "a defect");
        let words = finds(u64::MAX, defect);
        assert!(words.contains("KAAS_FUZZ_SEED=7") && words.contains("a defect"), "{words}");
        // One for the example, and one for the only change.
        assert_eq!(words.matches("Index").count(), 2, "{words}");
        assert_eq!(words, finds(u64::MAX, defect), "the same seed gives the same inputs");
    }

    #[test]
    fn an_input_that_takes_much_memory_is_found() {
        let words = finds(1000, |input| drop(vec![0; usize::from(input[0..].first().copied().unwrap_or(0)) * 20]));
        assert!(words.contains("bytes of memory for an input"), "{words}");
    }
}
