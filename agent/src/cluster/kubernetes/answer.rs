//! Reads the API server's answers: the requested object, or the reason of the error.

use anyhow::anyhow;
use serde::Deserialize;

use crate::host::https::Answer;

/// The body of an answer that is 200.
pub fn body(answer: Answer) -> anyhow::Result<Vec<u8>> {
    if answer.code == 200 { Ok(answer.body) } else { Err(refused(&answer)) }
}

/// The error that an answer stands for: its code, and the reason if one is given.
pub fn refused(answer: &Answer) -> anyhow::Error {
    match reason(answer) {
        reason if reason.is_empty() => anyhow!("the API server answers {}", answer.code),
        reason => anyhow!("the API server answers {}: {reason}", answer.code),
    }
}

/// The reason in a `Status` (`k8s.io/apimachinery`, `meta/v1`): its causes, such as the budget of an eviction, or else its
/// message. Empty when it is no `Status`.
pub fn reason(answer: &Answer) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        message: String,
        details: Details,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Details {
        causes: Vec<Cause>,
    }
    #[derive(Deserialize)]
    struct Cause {
        #[serde(default)]
        message: String,
    }
    let Status { message, details } = serde_json::from_slice(&answer.body).unwrap_or_default();
    let causes: Vec<String> = details.causes.into_iter().map(|cause| cause.message).collect();
    if causes.is_empty() { message } else { causes.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_codes_are_errors_with_the_reason() {
        let answer = |code, body: &str| Answer { code, body: body.as_bytes().to_vec() };
        assert_eq!(body(answer(200, "{}")).unwrap(), b"{}");
        let forbidden = body(answer(403, r#"{"kind":"Status","message":"nodes is forbidden"}"#)).unwrap_err();
        assert_eq!(forbidden.to_string(), "the API server answers 403: nodes is forbidden");
        assert_eq!(body(answer(502, "<html>")).unwrap_err().to_string(), "the API server answers 502");
    }

    #[test]
    fn a_refused_eviction_names_its_budget() {
        // As Kubernetes 1.36 answers.
        let body = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
            "message":"Cannot evict pod as it would violate the pod's disruption budget.","reason":"TooManyRequests",
            "details":{"causes":[{"reason":"DisruptionBudget",
                "message":"The disruption budget front needs 1 healthy pods and has 1 currently"}]},"code":429}"#;
        let said = reason(&Answer { code: 429, body: body.to_vec() });
        assert_eq!(said, "The disruption budget front needs 1 healthy pods and has 1 currently");
        let two = br#"{"message":"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}"#;
        assert!(reason(&Answer { code: 500, body: two.to_vec() }).starts_with("This pod has more than one"));
        assert_eq!(reason(&Answer { code: 502, body: b"<html>".to_vec() }), "");
    }
}
