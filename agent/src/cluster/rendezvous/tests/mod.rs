mod meeting;
mod over_tcp;
