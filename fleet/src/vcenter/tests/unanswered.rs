//! Permits that time out near the end of a long call.

use std::time::Duration;

use super::*;

/// Permits everything, except that one request gets no answer in time at first.
struct Unanswered {
    at: usize,
    times: usize,
    asked: AtomicUsize,
    rested: AtomicUsize,
}

impl Unanswered {
    fn new(at: usize, times: usize) -> Self {
        Self { at, times, asked: AtomicUsize::new(0), rested: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Fence for Unanswered {
    async fn still(&self) -> Result<()> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        match (self.at..self.at + self.times).contains(&asked) {
            true => Err(Error::new(ErrorKind::InDoubt, anyhow::anyhow!("no answer in time"))),
            false => Ok(()),
        }
    }

    fn rest(&self) -> Duration {
        self.rested.fetch_add(1, Ordering::SeqCst);
        Duration::from_millis(1)
    }
}

/// As [`Unanswered`], for a caller that is asked to end during the pause.
struct Ending(Unanswered);

#[async_trait]
impl Fence for Ending {
    async fn still(&self) -> Result<()> {
        self.0.still().await
    }

    fn rest(&self) -> Duration {
        self.0.rest()
    }

    async fn rests(&self, _: Duration) -> bool {
        false
    }
}

#[tokio::test]
async fn permit_after_upload_is_requested_again_after_pause() {
    let (bed, hypervisor) = started().await;
    let images = ["1", "2", "3", "4", "5"].map(|number| ova_with(vec![("kaas.test".to_owned(), number.to_owned())]));
    hypervisor.lay(&images[0]).await;
    // The last ones are for the snapshot, the template and the seal.
    let requests = hypervisor.requests_to_import(&images[1]).await;
    for (image, at) in images[2..].iter().zip(requests - 2..) {
        let before = bed.count("ImportVApp").await;
        let permit = Unanswered::new(at, 2);
        hypervisor.import(image, &permit).await.unwrap();
        assert_eq!(bed.count("ImportVApp").await, before + 1, "at request {at} of {requests}");
        let (asked, rested) = (permit.asked.into_inner(), permit.rested.into_inner());
        assert_eq!((asked, rested), (requests + 2, 2), "at request {at} of {requests}");
    }
}

#[tokio::test]
async fn cancelled_caller_stops_waiting_for_a_permit() {
    let (_bed, hypervisor) = started().await;
    let images = ["1", "2", "3"].map(|number| ova_with(vec![("kaas.test".to_owned(), number.to_owned())]));
    hypervisor.lay(&images[0]).await;
    let last = hypervisor.requests_to_import(&images[1]).await;
    let permit = Ending(Unanswered::new(last, 2));
    let error = hypervisor.import(&images[2], &permit).await.unwrap_err();
    assert!(error.to_string().contains("no answer in time"), "{error}");
    assert_eq!(permit.0.rested.into_inner(), 1);
}

/// Otherwise the caller pauses once more before it gives up, for a minute.
#[tokio::test]
async fn expired_wait_for_permit_ends_without_a_pause() {
    let bed = Bed::start(&[]);
    // It is tried at least twice more.
    let client = bed.limited(vsphere::Settings { patience: Duration::ZERO, ..Bed::settings() }).await;
    let hypervisor = bed.hypervisor_by(client, DEPLOYMENT, &bed.site()).await;
    let images = ["1", "2", "3"].map(|number| ova_with(vec![("kaas.test".to_owned(), number.to_owned())]));
    hypervisor.lay(&images[0]).await;
    let last = hypervisor.requests_to_import(&images[1]).await;
    let permit = Unanswered::new(last, 1000);
    let error = hypervisor.import(&images[2], &permit).await.unwrap_err();
    assert!(error.to_string().contains("no answer in time"), "{error}");
    assert_eq!((permit.asked.into_inner(), permit.rested.into_inner()), (last + 2, 2));
}
