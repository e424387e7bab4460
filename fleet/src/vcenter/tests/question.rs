//! A VM that waits for an operator's answer reports its question.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// The logged questions of all tests of this program.
struct Told(Mutex<Vec<String>>);

static TOLD: Told = Told(Mutex::new(Vec::new()));

impl log::Log for Told {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        let words = record.args().to_string();
        if words.contains("waits for an answer") {
            self.0.lock().unwrap().push(words);
        }
    }

    fn flush(&self) {}
}

fn told() -> Vec<String> {
    TOLD.0.lock().unwrap().clone()
}

#[tokio::test]
async fn question_is_logged_once_while_its_task_waits() {
    const WORDS: &str = "cp1 waits for an answer: \"Was it moved or copied?\": answer it in vSphere Client";
    log::set_logger(&TOLD).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let (bed, hypervisor, ova) = with_ova().await;
    let hypervisor = VcenterHypervisor { looking: Duration::from_millis(20), ..hypervisor };
    let image = hypervisor.lay(&ova).await;
    let vm = hypervisor.added("cp1", &image).await;
    let asks = async |text: &str| {
        let _: Value = bed.ask("POST", "question", json!({ "machine": "cp1", "text": text })).await;
    };
    bed.spoil("PowerOnVM_Task", "delay-task", json!({ "milliseconds": 600_000 })).await;
    asks("Was it moved\n or copied?").await;
    let somebody = async {
        while told().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The VM is checked repeatedly meanwhile.
        let successor = bed.hypervisor().await.settling_within(Duration::from_millis(200));
        let error = successor.settle(&Free).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transient, "{error}");
        assert!(error.to_string().contains("powerOn") && error.to_string().contains(WORDS), "{error}");
        assert_eq!(told(), [WORDS]);
        // A plan shows the question too.
        let tasks = bed.hypervisor().await.again(&vm).await.tasks;
        assert!(tasks.iter().any(|task| task.ends_with(WORDS)), "{tasks:?}");
        asks("").await;
        bed.spoil_nothing().await;
    };
    let (powered, ()) = tokio::join!(hypervisor.power_on(&vm, &Free), somebody);
    powered.unwrap();
    assert_eq!(told(), [WORDS]);
}
