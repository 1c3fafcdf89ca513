//! What is at each address.
//!
//! | address | answer |
//! |---|---|
//! | `POST /v1/predict` | outputs for the rows of the body; see `model` for its form |
//! | `GET /metrics` | counters, as text for Prometheus |
//! | `GET /healthz` | `ok` while the service takes requests |
//!
//! An answer that is no success has the body `{"error": "…"}`.

use crate::Limits;
use crate::batcher::{Batcher, Refusal};
use crate::model::{Failure, Model};
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use std::time::Instant;

#[derive(Clone)]
struct Service {
    batcher: Batcher,
    limits: Limits,
}

/// The service.
pub fn routes(batcher: Batcher, limits: Limits) -> Router {
    Router::new()
        .route("/v1/predict", post(predict))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(limits.max_body))
        .with_state(Service { batcher, limits })
}

async fn predict(State(service): State<Service>, body: Result<Bytes, BytesRejection>) -> Response {
    let start = Instant::now();
    let (status, body) = match outputs(&service, body).await {
        Ok(body) => (StatusCode::OK, body),
        Err((status, what)) => (status, json!({ "error": what }).to_string()),
    };
    service.batcher.metrics.answered(status.as_u16(), start.elapsed());
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The body of an answer, or the status and the message of a refusal.
async fn outputs(service: &Service, body: Result<Bytes, BytesRejection>) -> Result<String, (StatusCode, String)> {
    let Service { batcher, limits } = service;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            (StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {} bytes", limits.max_body))
        }
        status => (status, rejection.body_text()),
    })?;
    let rows = batcher.model.rows(&body, limits.max_batch).map_err(|what| (StatusCode::BAD_REQUEST, what))?;
    let outputs = batcher.predict(rows).await.map_err(|refusal| match refusal {
        Refusal::Overloaded => {
            let what = format!("{} requests wait already; try again later", limits.max_queue);
            (StatusCode::SERVICE_UNAVAILABLE, what)
        }
        Refusal::Failed(Failure::Rows(what)) => (StatusCode::BAD_REQUEST, what),
        Refusal::Failed(Failure::Service(what)) => (StatusCode::INTERNAL_SERVER_ERROR, what),
    })?;
    Model::body(&outputs).map_err(|what| (StatusCode::INTERNAL_SERVER_ERROR, what))
}

async fn metrics(State(service): State<Service>) -> Response {
    let text = service.batcher.metrics.text(service.batcher.queue_length());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
