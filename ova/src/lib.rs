//! Open Virtualization Format archives. Knows formats only, nothing of Kubernetes.
