//! Sweeps: every cell is the answer that it would have alone, in its place, under its name; what cannot be says why.

mod common;

use common::cases;
use llm_roofline::deployment::{DeploymentError, Host, Offload};
use llm_roofline::hardware::SystemError;
use llm_roofline::planner::{Axis, Cell, Grid, PlannerError, SpeculationChoice, Sweep};
use llm_roofline::prelude::*;
use llm_roofline::request::RequestError;
use llm_roofline::serving::Server;
use llm_roofline::speculative::Method;
use llm_roofline::step::CompileError;
use llm_roofline::workload::{Lengths, SharedPrefix, Slo};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

fn base(model: &str, device: &str, count: u32) -> Deployment {
    let catalog = Catalog::embedded();
    let system = System::new(catalog.device(device).unwrap(), count).unwrap();
    Deployment::new(catalog.model(model).unwrap(), system)
}

fn axis(name: &str, values: &[&str]) -> Axis {
    Axis::named(Catalog::embedded(), name, values.iter().copied()).unwrap()
}

fn sweep(base: &Deployment, request: Request, axes: &[(&str, &[&str])]) -> Sweep {
    let over = |sweep: Sweep, (name, values): &(&str, &[&str])| sweep.over(axis(name, values)).unwrap();
    axes.iter().fold(Sweep::new(base, &request), over)
}

/// The same cell without a sweep, from its labels; what they leave out is one request of 500 and 100 tokens to Llama 3.1 8B on one H100.
fn alone(labels: &[(&str, &str)]) -> Result<RequestEstimate, PlannerError> {
    let value = |name: &str| labels.iter().find(|(known, _)| *known == name).map(|(_, label)| *label);
    let number = |name: &str| value(name).map(|label| label.parse::<u64>().unwrap());
    let degree = |name: &str| number(name).unwrap_or(1) as u32;
    let catalog = Catalog::embedded();
    let (tensor, pipeline) = (degree("tensor_parallel"), degree("pipeline_parallel"));
    let data_attention = degree("data_parallel_attention");
    let device = catalog.device(value("devices").unwrap_or("h100-sxm-80gb")).unwrap();
    let system = System::new(device, tensor * pipeline * data_attention)?;
    let model = catalog.model(value("models").unwrap_or("llama-3.1-8b")).unwrap();
    let mut deployment = Deployment::new(model, system)
        .with_engine(catalog.engine(value("engines").unwrap_or("ideal")).unwrap())
        .with_tensor_parallel(tensor)
        .with_pipeline_parallel(pipeline)
        .with_data_parallel_attention(data_attention)
        .with_expert_parallel(degree("expert_parallel"));
    if let Some(weights) = value("weights") {
        deployment = deployment.with_weights(weights.parse().unwrap());
    }
    if let Some(kv) = value("kv") {
        deployment = deployment.with_kv(kv.parse().unwrap());
    }
    let request = Request::new(number("prompts").unwrap_or(500), number("outputs").unwrap_or(100));
    Ok(StepModel::compile(&deployment)?.request(&request.with_batch(number("batches").unwrap_or(1)))?)
}

/// The same answer, or the same refusal; a sweep tries nothing to make things fit.
fn same(found: &Result<RequestEstimate, PlannerError>, expected: &Result<RequestEstimate, PlannerError>) -> bool {
    match (found, expected) {
        (
            Err(PlannerError::Request(RequestError::DoesNotFit(found))),
            Err(PlannerError::Request(RequestError::DoesNotFit(expected))),
        ) => found.plan == expected.plan && found.shortages == expected.shortages && found.suggestions.is_empty(),
        _ => found == expected,
    }
}

fn is_too_large<T>(cell: &Result<T, PlannerError>) -> bool {
    matches!(cell, Err(PlannerError::Request(RequestError::DoesNotFit(_))))
}

#[test]
fn cells_lie_in_the_order_in_which_axes_were_added() {
    // Axes of requests first, so that the order of the computation is another.
    let axes: [(&str, &[&str]); 4] = [
        ("batches", &["1", "8", "64"]),
        ("weights", &["bf16", "fp8"]),
        ("outputs", &["100", "1"]),
        ("tensor_parallel", &["2", "1"]),
    ];
    let grid = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &axes).requests().unwrap();
    assert_eq!(grid.cells().shape(), [3, 2, 2, 2]);
    let mut expected = Vec::new();
    for batch in axes[0].1 {
        for weights in axes[1].1 {
            for output in axes[2].1 {
                for tensor in axes[3].1 {
                    expected.push(vec![*batch, *weights, *output, *tensor]);
                }
            }
        }
    }
    let found: Vec<_> = grid.iter().map(|(labels, _)| labels).collect();
    assert_eq!(found, expected);
    // Rows are contiguous in memory.
    assert_eq!(grid.cells().as_slice().unwrap().len(), 24);
    for (labels, cell) in grid.iter() {
        let named: Vec<_> = grid.axes().iter().map(|axis| axis.name).zip(labels).collect();
        assert!(same(cell, &alone(&named)), "{named:?}");
        assert_eq!(grid.get(&named).unwrap(), cell.as_ref().unwrap());
        assert_eq!(&grid.cells()[&grid.position(&named).unwrap()[..]], cell);
    }
}

/// More cells than are computed before they are put in their place, of several models, in an order that is not that of the computation.
#[test]
fn large_grids_are_in_order_too() {
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 1);
    let sweep = Sweep::new(&base, &Request::new(500, 100)).over(Axis::batches(1..=197)).unwrap();
    let sweep = sweep.over(axis("weights", &["bf16", "fp8", "int8"])).unwrap().over(Axis::prompts(1..=211)).unwrap();
    let told = sweep.run(|cell| {
        let Request { batch, prompt_tokens, .. } = cell.request();
        let weights = cell.model().deployment().weights().to_string();
        let own: Vec<_> = cell.labels().map(str::to_string).collect();
        Ok((own, [batch.to_string(), weights, prompt_tokens.to_string()]))
    });
    let told = told.unwrap();
    assert_eq!(told.cells().shape(), [197, 3, 211]);
    for (labels, cell) in told.iter() {
        let (own, values) = cell.as_ref().unwrap();
        assert!(*own == labels && *values == labels[..], "{own:?} with {values:?} lies at {labels:?}");
    }
}

/// The classic estimate: 70 billion parameters at 4 bits are 35 GB, read for every token.
#[test]
fn twice_the_bandwidth_halves_the_time_per_token() {
    let model = Model::from_totals("70B at 4 bits", Totals::dense(70_000_000_000, 4.0, Bytes::ZERO));
    let card = |gb_per_second: f64| {
        let bandwidth = BytesPerSecond::from_gb_per_second(gb_per_second);
        let peak = FlopsPerSecond::from_tflops_per_second(165.0);
        Device::from_specs(format!("{gb_per_second} GB/s card"), Bytes::from_gb(48.0), bandwidth, peak).unwrap()
    };
    let base = Deployment::new(model, System::new(card(500.0), 1).unwrap());
    let cards = Axis::devices([1000.0, 2000.0].map(card));
    let grid = Sweep::new(&base, &Request::new(100, 200)).over(cards).unwrap().requests().unwrap();
    let tpot = grid.values(|answer| answer.tpot.map(|tpot| tpot.as_millis()));
    let [slow, fast] = [tpot[0].unwrap(), tpot[1].unwrap()];
    assert!((slow - 35.0).abs() < 1e-9 && (fast - 17.5).abs() < 1e-9, "{slow} {fast}");
}

#[test]
fn refusals_stay_in_their_cells() {
    let axes: [(&str, &[&str]); 3] = [
        ("models", &["llama-3.1-8b", "llama-3.1-70b"]),
        ("tensor_parallel", &["1", "3", "8"]),
        ("devices", &["l4-24gb", "h100-sxm-80gb"]),
    ];
    let grid = sweep(&base("llama-3.1-8b", "l4-24gb", 1), Request::new(500, 100), &axes).requests().unwrap();
    for (labels, cell) in grid.iter() {
        match labels[..] {
            // 32 and 64 heads cannot be divided by 3.
            [model, "3", _] => {
                let heads = if model == "llama-3.1-8b" { 32 } else { 64 };
                let Err(PlannerError::Compile(CompileError::Deployment(DeploymentError::HeadsDoNotDivide {
                    tensor_parallel: 3,
                    heads: found,
                    ..
                }))) = cell
                else {
                    panic!("{labels:?}: {cell:?}")
                };
                assert_eq!(*found, heads);
            }
            // 141 GB in one device, of 24 or of 80 GB. An eighth, 17.6 GB, fits into both.
            ["llama-3.1-70b", "1", _] => assert!(is_too_large(cell), "{labels:?}"),
            _ => assert!(cell.is_ok(), "{labels:?}: {cell:?}"),
        }
    }
    assert_eq!((grid.refused().count(), grid.cells().len()), (6, 12));
}

#[test]
fn counts_are_replicas_where_tensor_parallelism_is_stated() {
    let axes: [(&str, &[&str]); 2] = [("counts", &["2", "3", "4", "0"]), ("tensor_parallel", &["1", "2", "4"])];
    let sweep = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &axes);
    let told = |cell: &Cell<'_>| {
        let deployment = cell.deployment();
        deployment.check().unwrap();
        assert_eq!(deployment.devices_used(), deployment.system().count());
        assert_eq!(cell.model().deployment().devices_used(), cell.model().deployment().tensor_parallel());
        Ok((cell.replicas(), std::ptr::from_ref(cell.model()) as usize))
    };
    let grid = sweep.run(told).unwrap();
    let replicas = |count: &str, tensor: &str| {
        grid.get(&[("counts", count), ("tensor_parallel", tensor)]).map(|(replicas, _)| *replicas)
    };
    let refused = |devices, group| Err(PlannerError::DoesNotDivide { devices, group });
    let expected = [[Ok(2), Ok(1), refused(2, 4)], [Ok(3), refused(3, 2), refused(3, 4)], [Ok(4), Ok(2), Ok(1)]];
    for (count, row) in ["2", "3", "4"].iter().zip(expected) {
        assert_eq!(["1", "2", "4"].map(|tensor| replicas(count, tensor)), row);
    }
    assert!(matches!(replicas("0", "1"), Err(PlannerError::System(SystemError::Count { value: 0, .. }))));
    // One model is compiled for any number of replicas.
    for tensor in ["1", "2"] {
        let [two, four] =
            ["2", "4"].map(|count| grid.get(&[("counts", count), ("tensor_parallel", tensor)]).unwrap().1);
        assert_eq!(two, four);
    }
}

#[test]
fn counts_are_cut_over_all_devices_where_it_is_not() {
    let axes: [(&str, &[&str]); 2] = [("pipeline_parallel", &["1", "2"]), ("counts", &["1", "2", "8"])];
    let sweep = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &axes);
    let grid = sweep.run(|cell| Ok((cell.deployment().tensor_parallel(), cell.replicas()))).unwrap();
    let layouts: Vec<_> = grid.into_cells().into_iter().collect();
    let refused = Err(PlannerError::DoesNotDivide { devices: 1, group: 2 });
    assert_eq!(layouts, [Ok((1, 1)), Ok((2, 1)), Ok((8, 1)), refused, Ok((1, 1)), Ok((4, 1))]);
}

#[test]
fn without_axes_the_base_is_the_only_cell() {
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 2).with_tensor_parallel(1).with_replicas(2);
    let sweep = Sweep::new(&base, &Request::new(500, 100));
    let grid = sweep.run(|cell| Ok((cell.replicas(), cell.estimate()?))).unwrap();
    let (replicas, found) = grid.get(&[]).unwrap();
    assert_eq!((*replicas, found), (2, &alone(&[]).unwrap()));
    assert_eq!(grid.map(|(replicas, _)| replicas * 2).to_string(), "4\n");
}

#[test]
fn what_no_axis_sets_stays_as_in_the_base() {
    let catalog = Catalog::embedded();
    let models = || axis("models", &["llama-3.1-8b", "deepseek-v3"]);
    let formats = |base: &Deployment| {
        let sweep = Sweep::new(base, &Request::new(500, 100)).over(models()).unwrap();
        let grid = sweep.run(|cell| Ok(cell.deployment().weights().to_string())).unwrap();
        grid.into_cells().into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    // Each in its native format, unless the base is in another.
    let native = base("llama-3.1-8b", "h200-sxm-141gb", 8);
    let deepseek = Deployment::new(catalog.model("deepseek-v3").unwrap(), native.system().clone());
    assert_eq!(formats(&native), ["bf16".to_string(), deepseek.weights().to_string()]);
    assert_ne!(deepseek.weights().to_string(), "bf16");
    assert_eq!(formats(&native.clone().with_weights("int8".parse().unwrap())), ["int8", "int8"]);

    // The network that was set is that of all devices; nodes are as large as usual for each.
    let network = BytesPerSecond::from_gb_per_second(12.5);
    let system = native.system().clone().with_scale_out(network).unwrap();
    let sweep = Sweep::new(&native.with_system(system), &Request::new(500, 100)).over(axis("devices", &["l4-24gb"]));
    let grid = sweep.unwrap().run(|cell| Ok(cell.deployment().system().clone())).unwrap();
    let found = grid.get(&[]).unwrap();
    let expected = System::new(catalog.device("l4-24gb").unwrap(), 8).unwrap().with_scale_out(network).unwrap();
    assert_eq!(found, &expected);
}

#[test]
fn what_lives_on_a_host_is_not_moved_elsewhere() {
    let catalog = Catalog::embedded();
    let host = Host::new(catalog.device("ryzen-9-7950x").unwrap(), Engine::ideal());
    let base = base("llama-3.1-8b", "rtx-4070-12gb", 1).with_host(host).with_offload(Offload::Layers { on_device: 20 });
    let request = Request::new(500, 100);
    let moved = sweep(&base, request, &[("devices", &["rtx-3060-12gb"])]).requests().unwrap();
    assert!(matches!(moved.get(&[]), Err(PlannerError::Unsupported { .. })));
    let stays = sweep(&base, request, &[("weights", &["bf16"])]).requests().unwrap();
    assert_eq!(stays.get(&[]).unwrap(), &StepModel::compile(&base).unwrap().request(&request).unwrap());
}

#[test]
fn steady_states_are_those_of_a_server() {
    let catalog = Catalog::embedded();
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 1).with_engine(catalog.engine("vllm-2026").unwrap());
    let axes: [(&str, &[&str]); 2] = [("rates", &["1 req/s", "8 req/s", "1 kreq/s"]), ("prompts", &["500", "3000"])];
    let slo = Slo::ttft_tpot("1 s".parse().unwrap(), "20 ms".parse().unwrap());
    for cached in [0, 200] {
        let request = Request::new(500, 100).with_cached_prompt_tokens(cached);
        let grid = sweep(&base, request, &axes).steady(&slo).unwrap();
        let model = StepModel::compile(&base).unwrap();
        for (labels, cell) in grid.iter() {
            let prompt: u64 = labels[1].parse().unwrap();
            let lengths = Lengths::fixed(prompt, 100).unwrap();
            let server = match cached {
                0 => Server::new(&model, &lengths),
                _ => {
                    let share = SharedPrefix::share(cached as f64 / prompt as f64).unwrap();
                    Server::with_prefix(&model, &lengths, &share)
                }
            };
            let rate = if labels[0] == "1000 req/s" { "1 kreq/s" } else { labels[0] };
            assert_eq!(cell.as_ref().unwrap(), &server.unwrap().open_loop(rate.parse().unwrap(), &slo).unwrap());
        }
        let loads = grid.map(|state| state.summary.stable);
        assert!(!loads.get(&[("rates", "1000 req/s"), ("prompts", "500")]).unwrap());
    }
    // One rate for all cells; none at all.
    let prompts = sweep(&base, Request::new(500, 100), &axes[1..]);
    let rate = RequestsPerSecond::from_requests_per_second(1.0);
    let of_all = prompts.clone().with_rate(rate).steady(&slo).unwrap();
    let by_axis = sweep(&base, Request::new(500, 100), &axes).steady(&slo).unwrap().at("rates", "1 req/s").unwrap();
    assert_eq!(of_all, by_axis);
    assert!(matches!(prompts.steady(&slo).unwrap().cells()[0], Err(PlannerError::Unsupported { .. })));
}

#[test]
fn servers_have_the_lengths_of_their_cells() {
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 1);
    // A thread takes several lengths one after another, and needs a server for each.
    let prompts = || (1..=300).map(|n| 10 * n);
    let sweep = Sweep::new(&base, &Request::new(500, 100)).over(Axis::prompts(prompts())).unwrap();
    let sweep = sweep.over(axis("rates", &["1 req/s", "2 req/s"])).unwrap();
    let grid = sweep.run(|cell| Ok(cell.server()?.max_rate())).unwrap();
    let model = StepModel::compile(&base).unwrap();
    for (prompt, found) in prompts().zip(grid.cells().as_slice().unwrap().chunks(2)) {
        let expected = Server::new(&model, &Lengths::fixed(prompt, 100).unwrap()).unwrap().max_rate();
        assert_eq!(found, [Ok(expected), Ok(expected)], "{prompt}");
    }
}

#[test]
fn speculation_is_made_for_each_target() {
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 1);
    let axes: [(&str, &[&str]); 3] = [
        ("models", &["llama-3.1-8b", "llama-3.1-70b"]),
        ("tensor_parallel", &["4"]),
        ("speculation", &["none", "eagle3 x 3 at 0.7", "ngram", "draft model"]),
    ];
    let sweep = sweep(&base, Request::new(500, 100), &axes);
    let grid = sweep.speculative_requests().unwrap();
    for model in ["llama-3.1-8b", "llama-3.1-70b"] {
        let grid = grid.at("models", model).unwrap().at("tensor_parallel", "4").unwrap();
        let plain = alone(&[("models", model), ("tensor_parallel", "4")]).unwrap();
        let none = grid.get(&[("speculation", "none")]).unwrap();
        assert_eq!((none.tpot, none.ttft, &none.plain), (plain.tpot, plain.ttft, &plain));
        let system = System::new(Catalog::embedded().device("h100-sxm-80gb").unwrap(), 4).unwrap();
        let target = Deployment::new(Catalog::embedded().model(model).unwrap(), system);
        let head = Speculation::new(Method::Eagle3, &target).unwrap().with_draft_tokens(3).unwrap();
        let head = SpeculativeModel::compile(&target, &head.with_acceptance_rate(0.7).unwrap()).unwrap();
        let expected = head.request(&Request::new(500, 100)).unwrap();
        assert_eq!(grid.get(&[("speculation", "EAGLE-3 x 3 at 0.7")]).unwrap(), &expected);
        assert!(grid.get(&[("speculation", "n-gram")]).is_ok());
        // A draft model is a deployment of its own, that nobody named.
        assert!(matches!(grid.get(&[("speculation", "draft model")]), Err(PlannerError::Speculation(_))));
    }
    assert!(matches!(sweep.requests(), Err(PlannerError::Unsupported { .. })));
    let plainly = sweep.run(|cell| cell.estimate()).unwrap();
    assert_eq!(plainly.iter().filter(|(_, cell)| cell.is_ok()).count(), 2);
    let served = sweep.with_rate(RequestsPerSecond::from_requests_per_second(1.0)).steady(&Slo::default()).unwrap();
    assert_eq!(served.iter().filter(|(_, cell)| cell.is_ok()).count(), 2);
}

#[test]
fn draft_models_are_given() {
    let draft = Speculation::draft_model(base("llama-3.2-1b", "h100-sxm-80gb", 1)).with_draft_tokens(5).unwrap();
    let choices = [SpeculationChoice::none(), draft.clone().into(), Method::NGram.into()];
    let target = base("llama-3.1-8b", "h100-sxm-80gb", 1);
    let sweep = Sweep::new(&target, &Request::new(500, 100)).over(Axis::speculation(choices)).unwrap();
    assert_eq!(sweep.axes()[0].labels(), ["none", "draft model llama-3.2-1b x 5", "n-gram"]);
    let grid = sweep.speculative_requests().unwrap();
    let expected = SpeculativeModel::compile(&target, &draft).unwrap().request(&Request::new(500, 100)).unwrap();
    assert_eq!(grid.cells()[1].as_ref(), Ok(&expected));
}

#[test]
fn a_sweep_can_be_stopped() {
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 1);
    let sweep = Sweep::new(&base, &Request::new(500, 100)).over(Axis::batches(1..=5000)).unwrap();
    let (told, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let progress = |progress: &llm_roofline::planner::SweepProgress| {
        told.fetch_add(1, Ordering::Relaxed);
        if progress.done >= 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let stopped = sweep.run_with(progress, |cell| {
        answered.fetch_add(1, Ordering::Relaxed);
        cell.estimate()
    });
    assert_eq!(stopped, Err(PlannerError::Cancelled));
    assert!(told.into_inner() > 0 && (1000..5000).contains(&answered.into_inner()));
}

#[test]
fn progress_grows_to_all_cells() {
    let base = base("llama-3.1-8b", "h100-sxm-80gb", 1);
    let sweep = Sweep::new(&base, &Request::new(500, 100)).over(axis("weights", &["bf16", "fp8"])).unwrap();
    let sweep = sweep.over(Axis::batches(1..=3000)).unwrap();
    let mut seen = Vec::new();
    let grid = sweep.run_with(
        |progress| {
            assert_eq!(progress.total, 6000);
            seen.push(progress.done);
            ControlFlow::Continue(())
        },
        |cell| cell.estimate(),
    );
    assert_eq!(grid.unwrap().cells().len(), 6000);
    assert!(seen.is_sorted() && seen.last() == Some(&6000) && (10..=1000).contains(&seen.len()), "{seen:?}");
}

#[cfg(feature = "parallel")]
#[test]
fn the_number_of_threads_changes_nothing() {
    let axes: [(&str, &[&str]); 4] = [
        ("prompts", &["100", "500", "3000", "200000"]),
        ("tensor_parallel", &["1", "2", "3"]),
        ("rates", &["1 req/s", "3 req/s", "9 req/s"]),
        ("weights", &["bf16", "fp8"]),
    ];
    let sweep = sweep(&base("llama-3.1-8b", "l40s-48gb", 1), Request::new(500, 100), &axes);
    let both = || {
        let states = sweep.run(|cell| Ok((cell.estimate()?, cell.steady(&Slo::default())?))).unwrap();
        (states, sweep.requests().unwrap())
    };
    let by = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(both);
    let one = by(1);
    assert!(one == both() && one == by(7));
    assert_eq!(one.0.cells().len(), 72);
}

#[test]
fn axes_that_make_no_sense_are_refused() {
    let catalog = Catalog::embedded();
    let sweep = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &[("kv", &["fp8"])]);
    let error = |axis: Axis| sweep.clone().over(axis).unwrap_err();
    assert!(matches!(error(axis("kv", &["bf16"])), PlannerError::Repeated { name, .. } if name == "kv"));
    assert_eq!(error(axis("weights", &[])), PlannerError::Empty { what: "weights" });
    assert!(
        matches!(error(axis("weights", &["fp8", "bf16", "fp8"])), PlannerError::Repeated { name, .. } if name == "fp8")
    );
    let unlabelled = axis("batches", &["1", "2"]).with_labels(["one"]);
    assert_eq!(error(unlabelled), PlannerError::Labels { axis: "batches", found: 1, expected: 2 });

    let named = |name: &str, value: &'static str| Axis::named(catalog, name, [value]).unwrap_err();
    assert!(
        matches!(named("tensorparallel2", "1"), PlannerError::Unknown { nearest: Some(near), .. } if near == "tensor_parallel")
    );
    assert!(matches!(named("devices", "h100-sxm-81gb"), PlannerError::Catalog(_)));
    for (name, value) in [("counts", "two"), ("rates", "2"), ("weights", "fp9"), ("speculation", "none x 3")] {
        assert!(matches!(named(name, value), PlannerError::Unreadable { what, .. } if what == name), "{name}");
    }
    // 2^32 cells.
    let many = sweep.over(Axis::batches(1..=65536)).unwrap().over(Axis::prompts(1..=65536)).unwrap();
    assert!(matches!(many.run(|_| Ok(())), Err(PlannerError::Number { what: "the number of cells", .. })));
}

#[test]
fn names_of_cells_are_checked() {
    let axes: [(&str, &[&str]); 3] = [("weights", &["bf16", "fp8"]), ("kv", &["fp8"]), ("batches", &["1", "2"])];
    let grid = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &axes).requests().unwrap();
    let position = |labels: &[(&str, &str)]| grid.position(labels);
    // An axis of one value need not be named, and spelling does not matter.
    assert_eq!(position(&[("Batches", "2"), ("weights", "FP8")]), Ok(vec![1, 0, 1]));
    assert_eq!(position(&[("weights", "fp8")]), Err(PlannerError::Unplaced { axis: "batches", values: 2 }));
    let twice = position(&[("weights", "fp8"), ("weights", "bf16"), ("batches", "1")]);
    assert!(matches!(twice, Err(PlannerError::Repeated { name, .. }) if name == "weights"));
    let Err(PlannerError::Unknown { name, expected, nearest, .. }) = position(&[("weights", "bf61"), ("batches", "1")])
    else {
        panic!("a label that is not there")
    };
    assert_eq!((name.as_str(), expected.len(), nearest.as_deref()), ("bf61", 2, Some("bf16")));
    assert!(grid.at("weights", "int4").is_err() && grid.at("sizes", "1").is_err());
}

#[test]
fn numbers_of_a_grid_are_finite() {
    let sweep = Sweep::new(&base("llama-3.1-8b", "h100-sxm-80gb", 1), &Request::new(500, 100));
    let sweep = sweep.over(Axis::batches(1..=5)).unwrap();
    let grid = sweep.run(|cell| Ok([f64::NAN, 3.0, f64::NEG_INFINITY, 1.0, 1.0][cell.request().batch as usize - 1]));
    let grid = grid.unwrap();
    let values: Vec<_> = grid.values(|value| *value).into_iter().collect();
    assert_eq!(values, [None, Some(3.0), None, Some(1.0), Some(1.0)]);
    // The first of the smallest.
    assert_eq!(grid.best_by(|value| *value), Some((vec!["4"], &1.0)));
    assert_eq!(grid.best_by(|_| f64::NAN), None);
}

#[test]
fn csv_has_a_line_for_every_cell() {
    let axes: [(&str, &[&str]); 2] = [("weights", &["bf16", "fp8"]), ("tensor_parallel", &["1", "3"])];
    let grid = sweep(&base("llama-3.1-8b", "l4-24gb", 1), Request::new(500, 100), &axes).requests().unwrap();
    let tpot = |answer: &RequestEstimate| answer.tpot.map(|tpot| tpot.as_seconds());
    let text = grid.to_csv(&[("tpot_s", &tpot), ("nothing", &|_| Some(f64::INFINITY))]);
    let mut table = csv::Reader::from_reader(text.as_bytes());
    assert_eq!(table.headers().unwrap(), vec!["weights", "tensor_parallel", "tpot_s", "nothing", "refused"]);
    let rows: Vec<_> = table.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4);
    for (row, (labels, cell)) in rows.iter().zip(grid.iter()) {
        assert_eq!([&row[0], &row[1]], labels[..]);
        assert_eq!(row[2].parse().ok(), cell.as_ref().ok().and_then(tpot));
        assert_eq!(&row[3], "");
        assert_eq!(row[4], cell.as_ref().err().map(ToString::to_string).unwrap_or_default());
    }
    assert!(rows[1][4].contains("does not divide the 32 heads"));
}

#[test]
fn tables_name_both_axes() {
    let axes: [(&str, &[&str]); 3] =
        [("weights", &["fp8"]), ("batches", &["1", "64"]), ("tensor_parallel", &["1", "3"])];
    let sweep = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &axes);
    let grid = sweep.run(|cell| Ok(cell.request().batch * 1000)).unwrap();
    assert_eq!(
        grid.to_string(),
        "weights  batches  tensor_parallel:      1        3\n\
         fp8      1                           1000  refused\n\
         fp8      64                         64000  refused\n"
    );
}

/// Axes with all values that the property draws from; some of them are refused, alone or together with others.
const DRAWN: [(&str, &[&str]); 11] = [
    ("models", &["llama-3.1-8b", "mixtral-8x7b"]),
    ("devices", &["h100-sxm-80gb", "l4-24gb", "l40s-48gb"]),
    ("engines", &["ideal", "vllm-2026"]),
    ("weights", &["bf16", "fp8"]),
    ("kv", &["bf16", "fp8"]),
    ("tensor_parallel", &["1", "2", "3", "4"]),
    ("pipeline_parallel", &["1", "2"]),
    ("expert_parallel", &["1", "2"]),
    ("data_parallel_attention", &["1", "2"]),
    ("prompts", &["0", "100", "3000", "200000"]),
    ("batches", &["1", "17", "300"]),
];

fn any_axes() -> impl Strategy<Value = Vec<(&'static str, Vec<&'static str>)>> {
    let chosen = prop::sample::subsequence(DRAWN.to_vec(), 1..=4).prop_shuffle();
    chosen.prop_flat_map(|axes| {
        let lists = axes.into_iter().map(|(name, values)| {
            let some = prop::sample::subsequence(values.to_vec(), 1..=values.len()).prop_shuffle();
            (Just(name), some)
        });
        lists.collect::<Vec<_>>()
    })
}

proptest! {
    #![proptest_config(cases(384, "tests/planner_sweep.proptest-regressions"))]

    #[test]
    fn every_cell_is_what_it_would_be_alone(axes in any_axes()) {
        let named: Vec<_> = axes.iter().map(|(name, values)| (*name, values.as_slice())).collect();
        let sweep = sweep(&base("llama-3.1-8b", "h100-sxm-80gb", 1), Request::new(500, 100), &named);
        let grid: Grid<RequestEstimate> = sweep.requests().unwrap();
        let shape: Vec<usize> = axes.iter().map(|(_, values)| values.len()).collect();
        prop_assert_eq!(grid.cells().shape(), &shape[..]);
        for (labels, cell) in grid.iter() {
            let labels: Vec<_> = axes.iter().map(|(name, _)| *name).zip(labels).collect();
            let expected = alone(&labels);
            prop_assert!(same(cell, &expected), "{:?}: {:?} is not {:?}", labels, cell, expected);
        }
    }

    #[test]
    fn labels_read_back(
        (counts, per_second) in (prop::collection::btree_set(0u32..3000, 1..5), 1u32..u32::MAX),
        (draft_tokens, rate) in (prop::option::of(0u64..300), prop::option::of(0f64..1.0)),
        method in prop::sample::select(&Method::ALL),
    ) {
        let mut choice = SpeculationChoice::from(method);
        choice = draft_tokens.into_iter().fold(choice, SpeculationChoice::with_draft_tokens);
        choice = rate.into_iter().fold(choice, SpeculationChoice::with_acceptance_rate);
        let per_second = RequestsPerSecond::from_requests_per_second(f64::from(per_second) / 1024.0);
        for axis in [Axis::counts(counts), Axis::rates([per_second]), Axis::speculation([choice])] {
            let read = Axis::named(Catalog::embedded(), axis.name(), axis.labels().iter().map(String::as_str)).unwrap();
            prop_assert_eq!(read.labels(), axis.labels());
        }
    }
}
