//! What vCenter shows of a VM while a task makes it.

use std::collections::BTreeMap;
use std::time::Duration;

use vsphere::MoRef;

use super::Probe;
use super::answer::{Failed, Tried, judged};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(300);

/// What is read: the second half is not there while a VM is made.
const PATHS: [&str; 5] = ["name", "parent", "recentTask", "config.changeVersion", "layoutEx"];
const SETTINGS: &str = PATHS[3];

/// The first look that saw a VM: which of [`PATHS`] it was shown.
pub(super) type Shown = BTreeMap<MoRef, Vec<&'static str>>;

impl Probe<'_> {
    /// Looks at the folder again and again while something is made there; what each new VM was shown with first.
    pub(super) async fn watching<T>(&self, act: impl Future<Output = T>) -> (T, Shown) {
        let before: Vec<MoRef> = self.look_around().await.unwrap_or_default().into_keys().collect();
        let (mut shown, mut act) = (Shown::new(), std::pin::pin!(act));
        let done = loop {
            let look = async {
                tokio::time::sleep(PAUSE).await;
                self.look_around().await.unwrap_or_default()
            };
            tokio::select! {
                biased;
                done = &mut act => break done,
                seen = look => {
                    for (vm, paths) in seen {
                        shown.entry(vm).or_insert(paths);
                    }
                }
            }
        };
        shown.retain(|vm, _| !before.contains(vm));
        (done, shown)
    }

    async fn look_around(&self) -> vsphere::Result<Shown> {
        let folder = &self.hypervisor.places.templates;
        let seen = self.client.list(folder, &["VirtualMachine"], false, &PATHS).await?;
        let of = |vm: &vsphere::Object| -> Vec<&'static str> {
            PATHS.into_iter().filter(|path| vm.get(path).is_some()).collect()
        };
        Ok(seen.iter().map(|vm| (vm.reference.clone(), of(vm))).collect())
    }
}

/// The answer of a row that asks what was shown of this VM.
pub(super) fn shown_as_made(shown: Option<&Shown>, vm: Option<&MoRef>) -> Tried {
    let not_tried = |why: &str| Err(Failed::NotTried(why.to_owned()));
    let (Some(shown), Some(vm)) = (shown, vm) else { return not_tried("it was not made") };
    let Some(paths) = shown.get(vm) else { return not_tried("it was whole before the command saw it") };
    let lacking: Vec<&str> = PATHS.into_iter().filter(|path| !paths.contains(path)).collect();
    judged(!paths.contains(&SETTINGS), format!("shown: {}; not shown: {}", paths.join(", "), lacking.join(", ")))
}
