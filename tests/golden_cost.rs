//! Published numbers of money and energy, each recomputed with the public API.
//!
//! `tests/data/golden_cost.csv` names the source of every number. A row without a recipe fails the test, unless the table says that it is skipped, and why.

#[path = "common/golden.rs"]
mod golden;
#[path = "common/table.rs"]
mod table;

use golden::{Inputs, reproduce};
use llm_roofline::planner::{
    Tariff, TokenCounts, energy_per_query, energy_per_request, energy_per_token, margin_over_cost, peak_per_usd_hour,
    usd_per_million_tokens,
};
use llm_roofline::prelude::*;
use table::Row;

const TABLE: &str = include_str!("data/golden_cost.csv");
/// Rows of the table, and those among them that are skipped: a row is lost if these change.
const ROWS: usize = 37;
const SKIPPED: usize = 1;

/// The quantity of a row as this crate computes it.
fn recompute(row: &Row) -> Option<f64> {
    let inputs = Inputs(row);
    let number = |name| inputs.number(name);
    let tokens = |name| TokensPerSecond::from_tokens_per_second(number(name));
    let token = || energy_per_token(Watts::from_watts(number("W")), tokens("tok_per_s")).unwrap();
    Some(match row.text("quantity") {
        "H100 FLOPs/s per $/h" | "v5p FLOPs/s per $/h" | "v5e FLOPs/s per $/h" => {
            let peak = FlopsPerSecond::from_flops_per_second(number("flops"));
            peak_per_usd_hour(peak, UsdPerHour::from_usd_per_hour(number("usd_per_h"))).unwrap().as_flops_per_second()
        }
        "throughput per watt = jobs per joule" => {
            let rate = RequestsPerSecond::from_requests_per_second(number("img_per_s"));
            1.0 / energy_per_request(Watts::from_watts(number("W")), rate).unwrap().as_joules()
        }
        "daily cost" => {
            let devices = number("nodes") * number("gpus");
            let price = UsdPerHour::from_usd_per_hour(number("usd_per_gpu_h")) * devices;
            (price * Seconds::from_seconds(3600.0 * number("hours"))).as_usd()
        }
        "theoretical daily revenue" => {
            let price = |name| UsdPerMillionTokens::from_usd_per_million_tokens(number(name));
            let tariff = Tariff { cached: price("p_hit"), missed: price("p_miss"), output: price("p_out") };
            let [cached, missed, output] = ["hit_B", "miss_B", "out_B"].map(|name| 1e9 * number(name));
            tariff.revenue(&TokenCounts { cached, missed, output }).unwrap().as_usd()
        }
        "cost profit margin (revenue-cost)/cost" => {
            let [revenue, cost] = ["revenue", "cost"].map(|name| Usd::from_usd(number(name)));
            100.0 * margin_over_cost(revenue, cost).unwrap()
        }
        "KV cache hit rate" => {
            let (cached, all) = (number("hit"), number("total"));
            100.0 * TokenCounts { cached, missed: all - cached, output: 0.0 }.hit_rate()?
        }
        "decode $ per M output tokens" | "prefill $ per M input tokens (hits included)" => {
            let price = UsdPerHour::from_usd_per_hour(number("node_usd_h"));
            usd_per_million_tokens(price, tokens("tok_per_s")).unwrap().as_usd_per_million_tokens()
        }
        "energy per token = P/throughput" => token().as_joules_per_token(),
        "kWh per M tokens = J/3.6" | "kWh per M tokens" => {
            JoulesPerToken::from_joules_per_token(number("J_per_tok")).as_kwh_per_million_tokens()
        }
        "energy per query" => {
            let power = Watts::from_kilowatts(number("P_node_kW"));
            energy_per_query(number("PUE"), power, tokens("TPS"), number("L")).unwrap().as_watt_hours()
        }
        _ => return None,
    })
}

#[test]
fn published_numbers_are_reproduced() {
    reproduce(TABLE, ROWS, SKIPPED, 1e-9, recompute);
}
