//! Many requests as a few that stand for them.

use super::lengths::LengthPoint;

/// Points with the weights and the means of all requests, at most `budget` of them: the group that scatters most is divided at its mean until
/// there are so many. Equal requests share a point.
pub(super) fn representatives(mut requests: Vec<LengthPoint>, budget: usize) -> Vec<LengthPoint> {
    requests.sort_unstable_by(|a, b| a.prompt.total_cmp(&b.prompt).then(a.output.total_cmp(&b.output)));
    requests.dedup_by(|next, kept| {
        let equal = next.prompt == kept.prompt && next.output == kept.output;
        kept.weight += if equal { next.weight } else { 0.0 };
        equal
    });
    if requests.len() <= budget {
        return requests;
    }
    let scale = Scale {
        prompt: 1.0 / mean_square(&requests, |request| request.prompt),
        output: 1.0 / mean_square(&requests, |request| request.output),
    };
    let mut groups = vec![Group::new(&requests, 0, scale)];
    while groups.len() < budget {
        let Some((widest, group)) = groups
            .iter()
            .copied()
            .enumerate()
            .max_by(|a, b| a.1.scatter.total_cmp(&b.1.scatter))
            .filter(|(_, group)| group.scatter > 0.0)
        else {
            break;
        };
        let members = &mut requests[group.first..group.first + group.count];
        let at = group.divide(members);
        if at == 0 || at == members.len() {
            groups[widest].scatter = 0.0; // rounding left nothing to divide
            continue;
        }
        groups[widest] = Group::new(&members[..at], group.first, scale);
        groups.push(Group::new(&members[at..], group.first + at, scale));
    }
    groups.iter().map(|group| group.centre).collect()
}

fn mean_square(requests: &[LengthPoint], length: impl Fn(&LengthPoint) -> f64) -> f64 {
    requests.iter().map(|request| request.weight * length(request).powi(2)).sum()
}

/// What a squared token of each length counts.
#[derive(Clone, Copy)]
struct Scale {
    prompt: f64,
    output: f64,
}

/// Some of the requests, as a range of their list.
#[derive(Clone, Copy)]
struct Group {
    first: usize,
    count: usize,
    centre: LengthPoint,
    /// What the second moments lose if the centre stands for all of them.
    scatter: f64,
    by_prompt: bool,
}

impl Group {
    fn new(members: &[LengthPoint], first: usize, scale: Scale) -> Self {
        let weight: f64 = members.iter().map(|request| request.weight).sum();
        let mean = |length: fn(&LengthPoint) -> f64| {
            members.iter().map(|request| request.weight * length(request)).sum::<f64>() / weight
        };
        let centre =
            LengthPoint { prompt: mean(|request| request.prompt), output: mean(|request| request.output), weight };
        let scatter = |length: fn(&LengthPoint) -> f64, mean: f64, scale: f64| {
            scale * members.iter().map(|request| request.weight * (length(request) - mean).powi(2)).sum::<f64>()
        };
        let prompt = scatter(|request| request.prompt, centre.prompt, scale.prompt);
        let output = scatter(|request| request.output, centre.output, scale.output);
        let scatter = if members.len() > 1 { prompt + output } else { 0.0 };
        Self { first, count: members.len(), centre, scatter, by_prompt: prompt >= output }
    }

    /// Sorts the members into those below the mean and the others; how many are below.
    fn divide(&self, members: &mut [LengthPoint]) -> usize {
        let by_prompt = self.by_prompt;
        let length = |request: &LengthPoint| if by_prompt { request.prompt } else { request.output };
        let mean = length(&self.centre);
        members.sort_unstable_by(|a, b| length(a).total_cmp(&length(b)));
        members.partition_point(|request| length(request) <= mean)
    }
}
