//! Requests drawn from a scene, and the gaps between tokens in it.

use super::draw::{self, DRAWS, Drawn, Waits, normal, shares, towards_one};
use super::metrics::Percentiles;
use super::operating::FirstToken;
use super::scene::{NODES, Node, PROMPTS, Scene};
use crate::engine::PromptPolicy;
use crate::units::Seconds;
use crate::workload::{LengthPoint, Lengths};

/// What requests are drawn from.
pub(super) struct Drawing<'a> {
    pub(super) scene: &'a Scene,
    pub(super) lengths: &'a Lengths,
    pub(super) front_end: Seconds,
    pub(super) waits: &'a Waits,
}

impl Drawing<'_> {
    /// Requests that stand for all.
    pub(super) fn requests(&self) -> Vec<Drawn> {
        let tables = self.scene.nodes.map(|node| Moments::new(self.scene, &node));
        (0..DRAWS).map(|index| self.request(index, &tables)).collect()
    }

    fn request(&self, index: usize, tables: &[Moments; NODES]) -> Drawn {
        let [whom, when, before, pace, which, place, together] = shares(index);
        let (before, before_weight) = towards_one(before);
        let (pace, pace_weight) = towards_one(pace);
        let (place, place_weight) = towards_one(place);
        let (together, together_weight) = towards_one(together);
        let chosen = ((whom * NODES as f64) as usize).min(NODES - 1);
        let node = &self.scene.nodes[chosen];
        let point = self.point(which);
        let start = tables[chosen].start(self.scene, node, when, together, point.prompt / self.lengths.moments().prompt);
        let overflow = self.scene.overflow;
        let rest = 1.0 - before;
        let before = if rest < overflow.share { overflow.wait.as_seconds() * (overflow.share / rest).ln() } else { 0.0 };
        let ttft = self.front_end.as_seconds() + self.waits.at(place) + before + start;
        let steps = point.output - 1.0;
        let tpot = if steps > 0.0 { self.scene.pace(node, steps, normal(pace)) } else { 0.0 };
        let weight = before_weight * pace_weight * place_weight * together_weight;
        Drawn { weight, ttft, tpot, e2e: ttft + steps * tpot }
    }

    fn point(&self, share: f64) -> &LengthPoint {
        let points = self.lengths.points();
        let mut left = share;
        let found = points.iter().find(|point| {
            left -= point.weight;
            left <= 0.0
        });
        found.unwrap_or(&points[points.len() - 1])
    }

    /// Percentiles of single gaps: those with many sequences count for many tokens.
    pub(super) fn gaps(&self, mean: Seconds) -> Percentiles {
        let mut samples = [(0.0, 0.0); NODES * PROMPTS];
        let cells = samples.chunks_exact_mut(PROMPTS);
        for (cells, node) in cells.zip(&self.scene.nodes) {
            // A token's own sequence is there too.
            let sequences = node.line.sequences + if self.scene.meets_own() { 1.0 } else { 0.0 };
            for (prompts, cell) in cells.iter_mut().enumerate() {
                *cell = (node.time(prompts), sequences * node.prompts[prompts]);
            }
        }
        draw::weighted(&mut samples, mean)
    }
}

/// The steps of a node as a request finds them at a random moment.
struct Moments {
    /// Share of the time in steps with so many prompts, added up.
    passed: [f64; PROMPTS],
}

impl Moments {
    fn new(scene: &Scene, node: &Node) -> Self {
        let mut passed = [0.0; PROMPTS];
        let mut sum = 0.0;
        for (prompts, passed) in passed.iter_mut().enumerate() {
            sum += node.prompts[prompts] * node.time(prompts);
            *passed = sum;
        }
        let _ = scene;
        if sum > 0.0 {
            passed.iter_mut().for_each(|share| *share /= sum);
        }
        Self { passed }
    }

    /// From having a place to the first token, for a prompt of `length` times the mean.
    fn start(&self, scene: &Scene, node: &Node, when: f64, together: f64, length: f64) -> f64 {
        let line = &node.line;
        let (running, found) = if scene.meets_steps && line.pure > 0.0 { self.running(scene, node, when) } else { (0.0, line.pure) };
        let beside = if scene.policy == PromptPolicy::First { 0.0 } else { line.pure };
        if scene.room < 1.0 {
            return running + (beside + line.first) * (length / scene.room).max(1.0);
        }
        // Those that come in the same step are processed together.
        let others = poisson_quantile(scene.rate * found, together).min(scene.room - 1.0);
        running + beside + line.first * length + line.more * others
    }

    /// The rest of the step that runs, and how long it is in all.
    fn running(&self, scene: &Scene, node: &Node, when: f64) -> (f64, f64) {
        let prompts = self.passed.iter().position(|passed| when <= *passed).unwrap_or(PROMPTS - 1);
        let before = if prompts > 0 { self.passed[prompts - 1] } else { 0.0 };
        let width = self.passed[prompts] - before;
        let part = if width > 0.0 { (when - before) / width } else { 0.5 };
        if scene.policy != PromptPolicy::First {
            let step = node.time(prompts);
            return (step * part, step);
        }
        // A gap with prompts is a step of answers and one or more of prompts: about as many in each.
        let (pure, added) = (node.line.pure, node.line.added(prompts as f64));
        let answers = pure / (pure + added);
        if part < answers {
            return (pure * (part / answers), pure);
        }
        let steps = (1.0 + (prompts as f64 - 1.0).max(0.0) * (scene.rate * node.line.first).min(1.0)).max(1.0);
        let step = added / steps;
        let within = ((part - answers) / (1.0 - answers) * steps).fract();
        (step * within, step)
    }
}

impl Scene {
    fn meets_own(&self) -> bool {
        self.meets_steps
    }

    /// Mean time per token of a request of so many steps, at so many standard deviations.
    fn pace(&self, node: &Node, steps: f64, deviations: f64) -> f64 {
        let part = (steps / self.steps).max(1e-6);
        // What is left of the fluctuation of sequences in a mean over this time, and how much of it is known at the start.
        let left = if part <= 1.0 { 1.0 - part / 3.0 } else { (1.0 - 1.0 / (3.0 * part)) / part };
        let known = if part <= 1.0 { 1.0 - part / 2.0 } else { 1.0 / (2.0 * part) };
        let (slope, stall) = (self.tpot_slope, self.stall / steps);
        let variance = self.variance * (slope * slope * (left - known * known) + stall * stall * part + slope * stall * part);
        let shift = slope * known * (node.line.sequences - self.sequences);
        let mean = self.tpot + shift;
        let deviation = variance.max(0.0).sqrt();
        let skewness = (2.0 * deviation / (self.tpot - 0.9 * self.fastest).max(1e-9)).min(1.0);
        (mean + deviation * (deviations + skewness / 6.0 * (deviations * deviations - 1.0))).max(self.fastest.min(self.tpot))
    }

    /// Means of the parts of the first token.
    pub(super) fn first_token(&self) -> FirstToken {
        let mut first = FirstToken { prompts_before: self.overflow.mean(), ..FirstToken::default() };
        for node in &self.nodes {
            let (running, own) = self.mean_start(node);
            first.running_step += Seconds::from_seconds(running / NODES as f64);
            first.own += Seconds::from_seconds(own / NODES as f64);
        }
        first
    }

    fn mean_start(&self, node: &Node) -> (f64, f64) {
        let line = &node.line;
        let (mut time, mut square) = (0.0, 0.0);
        for (prompts, share) in node.prompts.iter().enumerate() {
            let step = node.time(prompts);
            if self.policy == PromptPolicy::First {
                let added = step - line.pure;
                let steps = (1.0 + (prompts as f64 - 1.0).max(0.0) * (self.rate * line.first).min(1.0)).max(1.0);
                square += share * (line.pure * line.pure + added * added / steps);
            } else {
                square += share * step * step;
            }
            time += share * step;
        }
        let seen = if time > 0.0 && self.meets_steps { square / time } else { 0.0 };
        let beside = if self.policy == PromptPolicy::First { 0.0 } else { line.pure };
        if self.room < 1.0 {
            return (seen / 2.0, (beside + line.first) / self.room);
        }
        let others = (self.rate * seen).min(self.room - 1.0);
        (seen / 2.0, beside + line.first + line.more * others)
    }
}

/// The count that a share of a Poisson distribution does not exceed, with the part of the step that the share has passed.
fn poisson_quantile(mean: f64, share: f64) -> f64 {
    let mut probability = (-mean).exp();
    let mut passed = probability;
    let mut count = 0.0;
    while share > passed && count < 200.0 {
        count += 1.0;
        probability *= mean / count;
        passed += probability;
    }
    count
}
